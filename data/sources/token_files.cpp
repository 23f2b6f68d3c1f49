// Widens the bytes of files to int32, checks ids against the vocabulary, and finds the bounds of documents.
#include "data/sources/token_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include "data/sources/file_list.h"
#include "sharding/base/error.h"
#include "sharding/base/fail.h"
#include "sharding/files/file.h"

namespace tessera::data {

using namespace detail;

namespace {

constexpr int64_t tokens_at_once = 4096;
constexpr int64_t max_ids = int64_t{1} << 31;

std::string with_extension(std::string path, const char* extension) {
  return path.replace(path.size() - 4, 4, extension);
}

bool is_index(const std::string& path) { return path.size() > 4 && path.ends_with(".idx"); }

// Returns the paths of the token files. An index is replaced by the .bin next to it, once.
std::vector<std::string> resolved(std::vector<std::string> paths, const TokenFilesOptions& options) {
  for (std::string& path : paths)
    if (!is_there(path) && is_there(path + ".idx")) path += ".bin";
  std::vector<std::string> named, files;
  for (const FileEntry& file : list_files(paths, options.extensions)) named.push_back(file.path);
  const std::unordered_set<std::string_view> distinct(named.begin(), named.end());
  for (const std::string& path : named) {
    const std::string tokens = is_index(path) ? with_extension(path, ".bin") : path;
    const bool is_double = is_index(path) && distinct.contains(tokens);
    if (!is_double) files.push_back(tokens);
  }
  return files;
}

// Widens little-endian numbers; returns false if one of them is not below `limit`.
template <class T>
bool widen(const uint8_t* bytes, std::span<int32_t> out, int64_t limit) {
  using Wide = std::conditional_t<std::is_unsigned_v<T>, T, uint64_t>;
  Wide largest = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
    largest = std::max(largest, static_cast<Wide>(value));
    out[i] = static_cast<int32_t>(value);
  }
  return static_cast<uint64_t>(largest) < static_cast<uint64_t>(limit);
}

bool widen_as(const TokenType& type, const uint8_t* bytes, std::span<int32_t> out, int64_t limit) {
  const auto as = [&]<class T>(T) {
    return type.is_signed ? widen<T>(bytes, out, limit) : widen<std::make_unsigned_t<T>>(bytes, out, limit);
  };
  if (type.bytes == 1) return as(int8_t());
  if (type.bytes == 2) return as(int16_t());
  return type.bytes == 4 ? as(int32_t()) : as(int64_t());
}

// Returns a number's text as in its file.
std::string spelled(const TokenType& type, const uint8_t* bytes) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, static_cast<size_t>(type.bytes));
  const int unused = 64 - 8 * type.bytes;
  return type.is_signed ? std::to_string(static_cast<int64_t>(value << unused) >> unused) : std::to_string(value);
}

}  // namespace

struct TokenFiles::Impl {
  struct Part {
    int64_t begin, end;  // in tokens
    int64_t first_byte;  // in the source
    TokenType type;
  };

  ByteSource bytes;
  TokenFormat format = TokenFormat::automatic;
  int64_t limit = max_ids;
  std::vector<Part> parts = {};         // one for each file
  std::vector<int64_t> documents = {};  // end of each document, in tokens
  bool knows_documents = true;

  int64_t size() const { return parts.back().end; }
  const Part& part_at(int64_t offset) const {
    return *std::upper_bound(parts.begin(), parts.end(), offset, [](int64_t o, const Part& p) { return o < p.end; });
  }
  std::string where(int64_t offset) const {
    const Part& part = part_at(offset);
    const auto file = static_cast<size_t>(&part - parts.data());
    return fmt::format("{}, token {}", bytes.files()[file].path, offset - part.begin);
  }

  void add(const SourceFile& file, const TokenLayout& layout) {
    const int64_t begin = parts.empty() ? 0 : size();
    parts.push_back({begin, begin + layout.count, file.begin + layout.begin, layout.type});
    for (const int64_t end : layout.documents) documents.push_back(begin + end);
    knows_documents = knows_documents && layout.knows_documents;
  }

  [[noreturn]] void refuse(const Part& part, int64_t offset, const uint8_t* raw, int64_t count) const {
    int32_t ignored;
    int64_t i = 0;
    while (i + 1 < count && widen_as(part.type, raw + i * part.type.bytes, {&ignored, 1}, limit)) ++i;
    fail(ErrorKind::invalid_file, "read",
         "{}: id {}, expected one of 0 to {}; is the file of another tokenizer or another format?", where(offset + i),
         spelled(part.type, raw + i * part.type.bytes), limit - 1);
  }
};

TokenFiles TokenFiles::open(const std::vector<std::string>& paths, const TokenFilesOptions& options) {
  if (options.vocab_size < 0 || options.vocab_size > max_ids)
    fail(ErrorKind::invalid_argument, "open", "a vocabulary of {}, expected 0 to 2^31", options.vocab_size);
  auto impl = std::make_shared<Impl>(Impl{ByteSource::open(resolved(paths, options), {.map_from = options.map_from})});
  impl->limit = options.vocab_size ? options.vocab_size : max_ids;
  for (const SourceFile& file : impl->bytes.files()) {
    const std::string index = file.path.ends_with(".bin") ? with_extension(file.path, ".idx") : file.path + ".idx";
    const TokenFormat format =
        options.format != TokenFormat::automatic ? options.format : format_of(impl->bytes, file, is_there(index));
    if (!impl->parts.empty() && format != impl->format)
      fail_tokens(file.path, fmt::format("a {} file, and those before it are {}; open each format by itself",
                                         name_of(format), name_of(impl->format)));
    impl->format = format;
    impl->add(file, read_token_layout(format, impl->bytes, file, index));
  }
  if (impl->size() == 0) fail_tokens(paths.front(), "no token in it, nor in the other files");
  return TokenFiles(std::move(impl));
}

const TokenFiles::Impl& TokenFiles::impl() const { return tessera::detail::held(impl_, "TokenFiles", "source"); }

int64_t TokenFiles::size() const { return impl().size(); }
TokenFormat TokenFiles::format() const { return impl().format; }
bool TokenFiles::knows_documents() const { return impl().knows_documents; }

void TokenFiles::read(int64_t offset, std::span<int32_t> out) const {
  const Impl& impl = this->impl();
  check_range("tokens", offset, out.size(), impl.size());
  std::array<uint8_t, tokens_at_once * 8> raw;
  while (!out.empty()) {
    const Impl::Part& part = impl.part_at(offset);
    const int64_t count = std::min({static_cast<int64_t>(out.size()), part.end - offset, tokens_at_once});
    const int64_t width = part.type.bytes;
    impl.bytes.read(part.first_byte + (offset - part.begin) * width,
                    std::span(raw).first(static_cast<size_t>(count * width)));
    if (!widen_as(part.type, raw.data(), out.first(static_cast<size_t>(count)), impl.limit))
      impl.refuse(part, offset, raw.data(), count);
    offset += count;
    out = out.subspan(static_cast<size_t>(count));
  }
}

std::string TokenFiles::where(int64_t offset) const {
  check_range("tokens", offset, 1, size());
  return impl().where(offset);
}

std::string TokenFiles::describe() const { return impl().bytes.describe() + " as " + name_of(format()) + " tokens"; }

// ---- documents ------------------------------------------------------------------------------------------------------

namespace {

void check_separator(const TokenFiles& files, const TokenDocumentOptions& options) {
  const int given = options.end_of_text.has_value() + options.begin_of_text.has_value();
  if (given == (files.knows_documents() ? 0 : 1)) return;
  if (given == 2)
    fail(ErrorKind::invalid_argument, "token_documents",
         "end_of_text {} and begin_of_text {} given, expected one of them, or none for files that mark the "
         "ends of documents themselves",
         *options.end_of_text, *options.begin_of_text);
  fail(ErrorKind::invalid_argument, "token_documents",
       files.knows_documents() ? "a separator, and the files mark the ends of documents themselves; give none"
                               : "the files do not mark the ends of documents; give end_of_text or begin_of_text");
}

std::vector<int64_t> bounds_by_separator(const TokenFiles& files, int32_t separator, bool is_last) {
  std::vector<int64_t> bounds{0};
  std::vector<int32_t> chunk(static_cast<size_t>(std::min<int64_t>(files.size(), 1 << 20)));
  bool is_found = false;
  for (int64_t at = 0; at < files.size(); at += static_cast<int64_t>(chunk.size())) {
    chunk.resize(static_cast<size_t>(std::min(static_cast<int64_t>(chunk.size()), files.size() - at)));
    files.read(at, chunk);
    for (size_t i = 0; i < chunk.size(); ++i) {
      if (chunk[i] != separator) continue;
      const int64_t bound = at + static_cast<int64_t>(i) + is_last;
      if (bound > bounds.back()) bounds.push_back(bound);
      is_found = true;
    }
  }
  if (!is_found)
    fail(ErrorKind::invalid_file, "token_documents",
         "{}: the separator {} does not occur in {} tokens; is it of another tokenizer?", files.describe(), separator,
         files.size());
  if (bounds.back() < files.size()) bounds.push_back(files.size());
  return bounds;
}

}  // namespace

TokenDocuments::TokenDocuments(TokenFiles files, const TokenDocumentOptions& options) : files_(std::move(files)) {
  check_separator(files_, options);
  std::vector<int64_t> bounds{0};
  if (files_.knows_documents()) {
    const auto& ends = files_.impl().documents;
    bounds.insert(bounds.end(), ends.begin(), ends.end());
  } else {
    const bool is_last = options.end_of_text.has_value();
    bounds = bounds_by_separator(files_, is_last ? *options.end_of_text : *options.begin_of_text, is_last);
  }
  if (bounds.size() == 1)
    fail(ErrorKind::invalid_file, "token_documents", "{}: no document, expected at least one", files_.describe());
  bounds_ = std::make_shared<const std::vector<int64_t>>(std::move(bounds));
}

const std::vector<int64_t>& TokenDocuments::bounds() const {
  return tessera::detail::held(bounds_, "TokenDocuments", "source");
}

int64_t TokenDocuments::size() const { return static_cast<int64_t>(bounds().size()) - 1; }

std::vector<int32_t> TokenDocuments::operator[](int64_t index) const {
  if (index < 0 || index >= size())
    fail(ErrorKind::invalid_argument, "read", "document {}, expected one of [0, {})", index, size());
  const auto at = static_cast<size_t>(index);
  std::vector<int32_t> tokens(static_cast<size_t>(bounds()[at + 1] - bounds()[at]));
  if (!tokens.empty()) files_.read(bounds()[at], tokens);
  return tokens;
}

std::string TokenDocuments::describe() const { return fmt::format("{} | documents({})", files_.describe(), size()); }

}  // namespace tessera::data
