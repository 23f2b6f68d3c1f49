// Reads llm.c's header and Megatron's index, and compares their numbers with the sizes of the files.
#include "data/sources/token_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <string_view>

#include "data/sources/text_source.h"
#include "sharding/base/fail.h"
#include "sharding/files/file.h"

namespace tessera::data::detail {
namespace {

constexpr std::string_view index_magic("MMIDIDX\0\0", 9), npy_magic = "\x93NUMPY";
constexpr int64_t llm_c_header = 256 * 4;

// Returns `count` numbers of a file, which is little-endian. All must be in the file.
template <class T>
std::vector<T> numbers(const ByteSource& bytes, const SourceFile& file, int64_t at, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  bytes.read(file.begin + at, {reinterpret_cast<uint8_t*>(values.data()), values.size() * sizeof(T)});
  return values;
}

bool begins_with(const ByteSource& bytes, const SourceFile& file, std::string_view magic) {
  const auto size = static_cast<int64_t>(magic.size());
  if (file.size < size) return false;
  const auto first = numbers<char>(bytes, file, 0, size);
  return std::equal(first.begin(), first.end(), magic.begin());
}

struct LlmC {
  int32_t magic, version;
  TokenType type;
};
constexpr LlmC llm_c_kinds[] = {{20240520, 1, {2, false}}, {20240801, 7, {4, false}}};

const LlmC* llm_c_kind(const ByteSource& bytes, const SourceFile& file) {
  const int32_t magic = file.size < 4 ? 0 : numbers<int32_t>(bytes, file, 0, 1)[0];
  const auto* kind =
      std::find_if(std::begin(llm_c_kinds), std::end(llm_c_kinds), [&](const LlmC& k) { return k.magic == magic; });
  return kind == std::end(llm_c_kinds) ? nullptr : kind;
}

// ---- files of something else

constexpr const char *save_ids = "Save its token ids with numpy.save, as .npy", *decompress = "Decompress it",
                     *no_tokens = "It holds no tokens: give other files", *tokenize = "Tokenize its texts first";

struct Kind {
  std::string_view begin;
  const char *name, *advice;
};
constexpr Kind other_kinds[] = {
    {"PK\x03\x04", "a zip archive, as numpy's .npz and PyTorch's checkpoints are", save_ids},
    {"\x80\x02\x8a\x0a", "a PyTorch checkpoint", save_ids},
    {"\x1f\x8b\x08", "a gzip file", decompress},
    {"\x28\xb5\x2f\xfd", "a zstd file", decompress},
    {"\xfd\x37zXZ", "an xz file", decompress},
    {"BZh9", "a bzip2 file", decompress},
    {"\x89HDF", "an HDF5 file", save_ids},
    {"PAR1", "a Parquet file", save_ids},
    {"ARROW1", "an Arrow file", save_ids},
    {"\xff\xff\xff\xff", "an Arrow stream, as the .arrow files of datasets are", save_ids},
    {"GGUF", "a GGUF file, which has a model's weights", no_tokens}};

// Detects a pickle, which begins with PROTO 2 to 5 and ends with STOP.
bool is_pickle(const ByteSource& bytes, const SourceFile& file) {
  if (file.size < 4) return false;
  const auto first = numbers<uint8_t>(bytes, file, 0, 3);
  if (first[0] != 0x80 || numbers<char>(bytes, file, file.size - 1, 1)[0] != '.') return false;
  if (first[1] == 4 || first[1] == 5) return first[2] == 0x95;  // FRAME
  return (first[1] == 2 || first[1] == 3) && std::strchr("}](cXK", first[2]) && first[2];
}

bool is_safetensors(const ByteSource& bytes, const SourceFile& file) {
  if (file.size < 10 || numbers<char>(bytes, file, 8, 1)[0] != '{') return false;
  return numbers<uint64_t>(bytes, file, 0, 1)[0] <= static_cast<uint64_t>(file.size - 8);
}

// Detects text, which has no control characters. Token files have them: the high bytes of ids below 2304, which are the
// most frequent ids.
bool is_text(const ByteSource& bytes, const SourceFile& file) {
  if (file.size < 64) return false;
  const auto first = numbers<uint8_t>(bytes, file, 0, std::min<int64_t>(file.size, 4096));
  const auto is_printed = [](uint8_t c) { return c >= ' ' || (c >= '\t' && c <= '\r'); };
  if (!std::all_of(first.begin(), first.end(), is_printed)) return false;
  const int64_t invalid = first_invalid_utf8(std::string(first.begin(), first.end()));
  return invalid < 0 || invalid + 3 >= static_cast<int64_t>(first.size());  // the last character may be incomplete
}

// Detects numbers of more bytes than Half: every second Half is below 16 (ids are below 2^20), and at least a quarter
// of the others are larger than all of these. In tokens of this type, both positions have the same distribution.
template <class Half>
bool is_wider_than(const ByteSource& bytes, const SourceFile& file) {
  const auto size = static_cast<int64_t>(2 * sizeof(Half));
  const int64_t pairs = std::min<int64_t>(file.size / size, 2048);
  if (file.size % size != 0 || pairs < 64) return false;  // a few tokens can match the pattern by chance
  const auto halves = numbers<Half>(bytes, file, 0, 2 * pairs);
  Half largest = 0;
  for (size_t i = 1; i < halves.size(); i += 2) largest = std::max(largest, halves[i]);
  int64_t larger = 0;
  for (size_t i = 0; i < halves.size(); i += 2) larger += halves[i] > largest;
  return largest < 16 && 4 * larger >= pairs;
}

// Returns the format of a file without a header, by its name. Throws if its bytes show a different format.
TokenFormat headerless_format(const ByteSource& bytes, const SourceFile& file) {
  std::string path = file.path;
  std::transform(path.begin(), path.end(), path.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool is_uint32 = path.ends_with(".uint32.bin") || path.ends_with(".u32.bin");
  const std::string type = is_uint32 ? "uint32" : "uint16";
  const auto refuse = [&](const char* kind, const char* advice) {
    fail_tokens(file.path,
                fmt::format("this is {}, expected {} tokens. {}. If these are {} tokens, name TokenFormat::{}", kind,
                            type, advice, type, is_uint32 ? "headerless_uint32" : "headerless"));
  };
  if (begins_with(bytes, file, git_lfs_begin)) fail_tokens(file.path, std::string(git_lfs_advice));
  for (const Kind& kind : other_kinds)
    if (begins_with(bytes, file, kind.begin)) refuse(kind.name, kind.advice);
  if (is_pickle(bytes, file)) refuse("a pickle", save_ids);
  if (is_safetensors(bytes, file)) refuse("a safetensors file, which has a model's weights", no_tokens);
  if (is_text(bytes, file)) refuse("text", tokenize);
  if (is_wider_than<uint32_t>(bytes, file)) refuse("a file of numbers of 8 bytes", save_ids);
  if (!is_uint32 && is_wider_than<uint16_t>(bytes, file))
    refuse("a file of uint32", "End its name in .uint32.bin, or name TokenFormat::headerless_uint32");
  return is_uint32 ? TokenFormat::headerless_uint32 : TokenFormat::headerless;
}

TokenLayout headerless_layout(const SourceFile& file, TokenFormat format) {
  const int width = format == TokenFormat::headerless ? 2 : 4;
  if (file.size % width != 0)
    fail_tokens(
        file.path,
        fmt::format("{} bytes are not a whole number of uint{} tokens; is it truncated, or not a file of tokens?",
                    file.size, 8 * width));
  return {.format = format, .type = {width, false}, .count = file.size / width};
}

TokenLayout llm_c_layout(const ByteSource& bytes, const SourceFile& file) {
  const LlmC* kind = llm_c_kind(bytes, file);
  if (!kind) fail_tokens(file.path, "does not begin with llm.c's number 20240520 or 20240801; name its own format");
  if (file.size < llm_c_header)
    fail_tokens(file.path,
                fmt::format("{} bytes, expected llm.c's header of {}; it is truncated", file.size, llm_c_header));
  const auto header = numbers<int32_t>(bytes, file, 0, 3);
  if (header[1] != kind->version)
    fail_tokens(file.path, fmt::format("version {} of llm.c's {}, expected {}", header[1], kind->magic, kind->version));
  const int64_t rest = file.size - llm_c_header;
  if (header[2] < 0 || header[2] * int64_t{kind->type.bytes} != rest)
    fail_tokens(file.path,
                fmt::format("its header declares {} tokens of {} bytes, and {} bytes follow; it is truncated or "
                            "damaged",
                            header[2], kind->type.bytes, rest));
  return {.format = TokenFormat::llm_c, .type = kind->type, .begin = llm_c_header, .count = header[2]};
}

// ---- Megatron -------------------------------------------------------------------------------------------------------

TokenType megatron_type(uint8_t code, const std::string& path) {
  constexpr std::array<TokenType, 9> types = {
      {{}, {1, false}, {1, true}, {2, true}, {4, true}, {8, true}, {}, {}, {2, false}}};
  if ((code < 1 || code > 5) && code != 8)
    fail_tokens(path, fmt::format("element type {}, expected the code of an integer type: 1 to 5 or 8", code));
  return types[code];
}

struct Counts {
  int64_t sequences, boundaries;  // one boundary more than documents
};

// Returns both counts, which must account for the size of the index; modes of multimodal sequences may follow.
Counts counts_of(const ByteSource& bytes, const SourceFile& file, int64_t header) {
  const auto counts = numbers<uint64_t>(bytes, file, header - 16, 2);
  const auto rest = static_cast<uint64_t>(file.size - header);
  const bool fits = counts[0] <= rest / 12 && counts[1] <= rest / 8;
  const uint64_t needed = fits ? counts[0] * 12 + counts[1] * 8 : 0;
  if (!fits || (rest != needed && rest != needed + counts[0]))
    fail_tokens(file.path, fmt::format("its header declares {} sequences and {} boundaries of documents, and {} bytes "
                                       "follow; it is truncated or damaged",
                                       counts[0], counts[1], rest));
  return {static_cast<int64_t>(counts[0]), static_cast<int64_t>(counts[1])};
}

// Returns the end of each sequence in tokens, preceded by a 0.
std::vector<int64_t> ends_of_sequences(const std::vector<int32_t>& sizes, const std::vector<int64_t>& pointers,
                                       int bytes, int64_t bytes_of_tokens, const std::string& path) {
  std::vector<int64_t> ends{0};
  ends.reserve(sizes.size() + 1);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0) fail_tokens(path, fmt::format("sequence {} has {} tokens", i, sizes[i]));
    if (pointers[i] != ends.back() * bytes)
      fail_tokens(path, fmt::format("sequence {} begins at byte {}, and those before it end at byte {}", i, pointers[i],
                                    ends.back() * bytes));
    if (sizes[i] > bytes_of_tokens / bytes - ends.back())
      fail_tokens(path, fmt::format("sequence {} ends after the {} bytes of tokens; one of the two files is truncated "
                                    "or of another run",
                                    i, bytes_of_tokens));
    ends.push_back(ends.back() + sizes[i]);
  }
  return ends;
}

TokenLayout megatron_layout(const SourceFile& tokens, const std::string& index) {
  constexpr int64_t header = 9 + 8 + 1 + 8 + 8;
  const ByteSource bytes = ByteSource::open({index});
  const SourceFile& file = bytes.files().front();
  if (!begins_with(bytes, file, index_magic))
    fail_tokens(
        index,
        "does not begin with MMIDIDX, as an index of Megatron does; if the file next to it has none, name its format");
  if (file.size < header) fail_tokens(index, fmt::format("{} bytes, expected a header of {}", file.size, header));
  if (const auto version = numbers<uint64_t>(bytes, file, 9, 1)[0]; version != 1)
    fail_tokens(index, fmt::format("version {} of Megatron's index, expected 1", version));
  TokenLayout layout{.format = TokenFormat::megatron,
                     .type = megatron_type(numbers<uint8_t>(bytes, file, 17, 1)[0], index),
                     .knows_documents = true};
  const Counts counts = counts_of(bytes, file, header);
  const auto ends = ends_of_sequences(numbers<int32_t>(bytes, file, header, counts.sequences),
                                      numbers<int64_t>(bytes, file, header + 4 * counts.sequences, counts.sequences),
                                      layout.type.bytes, tokens.size, index);
  const auto bounds = numbers<int64_t>(bytes, file, header + 12 * counts.sequences, counts.boundaries);
  const bool is_sorted = std::is_sorted(bounds.begin(), bounds.end());
  if (bounds.empty() || !is_sorted || bounds.front() != 0 || bounds.back() != counts.sequences)
    fail_tokens(index, fmt::format("the boundaries of its documents do not go from 0 up to its {} sequences",
                                   counts.sequences));
  for (size_t i = 1; i < bounds.size(); ++i) layout.documents.push_back(ends[static_cast<size_t>(bounds[i])]);
  layout.count = ends.back();
  if (tokens.size != layout.count * layout.type.bytes)
    fail_tokens(tokens.path,
                fmt::format("{} bytes, and {} declares {} tokens of {} bytes; one of them is truncated or of "
                            "another run",
                            tokens.size, index, layout.count, layout.type.bytes));
  return layout;
}

}  // namespace

void fail_tokens(const std::string& path, const std::string& what) {
  fail(ErrorKind::invalid_file, "open", path + ": " + what + ".");
}

std::string name_of(TokenFormat format) {
  constexpr std::array names = {"any", "headerless", "llm.c", "Megatron", "npy", "headerless uint32"};
  return names[static_cast<size_t>(format)];
}

TokenFormat format_of(const ByteSource& bytes, const SourceFile& file, bool has_index) {
  if (has_index) return TokenFormat::megatron;
  if (begins_with(bytes, file, npy_magic) || file.path.ends_with(".npy")) return TokenFormat::npy;
  if (begins_with(bytes, file, index_magic))
    fail_tokens(file.path, "an index of Megatron's; name the .bin next to it, or end its name in .idx");
  if (llm_c_kind(bytes, file)) return TokenFormat::llm_c;
  return headerless_format(bytes, file);
}

TokenLayout read_token_layout(TokenFormat format, const ByteSource& bytes, const SourceFile& file,
                              const std::string& index) {
  if (format == TokenFormat::llm_c) return llm_c_layout(bytes, file);
  if (format == TokenFormat::megatron) return megatron_layout(file, index);
  return format == TokenFormat::npy ? npy_layout(bytes, file) : headerless_layout(file, format);
}

}  // namespace tessera::data::detail
