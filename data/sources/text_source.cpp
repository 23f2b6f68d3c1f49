// LineSource and DocumentSource: finds lines, reads files, and validates UTF-8.
#include "data/sources/text_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "data/sources/decompress.h"
#include "data/sources/token_source.h"
#include "sharding/base/error.h"
#include "sharding/base/fail.h"

namespace tessera::data {

namespace {

[[noreturn]] void bad_text(const std::string& where, const std::string& what) {
  fail(ErrorKind::invalid_file, "read", "{}: {}", where, what);
}

void check_index(int64_t index, int64_t size, const char* what) {
  if (index >= 0 && index < size) return;
  fail(ErrorKind::invalid_argument, "read", "{} {}, expected one of [0, {})", what, index, size);
}

void check_text(std::string_view text, const std::string& where) {
  const int64_t at = first_invalid_utf8(text);
  if (at < 0) return;
  bad_text(where, fmt::format("byte {} (0x{:02x}) is not UTF-8; convert the file, or read it as it is with "
                              "{{.check_utf8 = false}}",
                              at, static_cast<unsigned char>(text[static_cast<size_t>(at)])));
}

std::string decompressed_text(const std::string& compressed, const std::string& path, int64_t max_bytes) {
  const std::span bytes(reinterpret_cast<const uint8_t*>(compressed.data()), compressed.size());
  constexpr int64_t of_any = 256 << 10;  // for each document: thousands of tiny files must not expand to many gigabytes
  const int64_t limit = detail::max_decompressed(max_bytes, static_cast<int64_t>(compressed.size()), of_any);
  auto pieces = detail::decompressed(bytes, path, limit);
  size_t size = 0;
  for (const auto& piece : pieces) size += static_cast<size_t>(piece.size);
  std::string text;
  text.reserve(size);
  for (auto& piece : pieces) {
    text.append(reinterpret_cast<const char*>(piece.bytes.get()), static_cast<size_t>(piece.size));
    piece.bytes.reset();
  }
  return text;
}

bool has_byte_order_mark(const ByteSource& bytes, const SourceFile& file) {
  uint8_t mark[3] = {};
  if (file.size >= 3) bytes.read(file.begin, mark);
  return mark[0] == 0xef && mark[1] == 0xbb && mark[2] == 0xbf;
}

// Throws if the line index of compressed files, 8 bytes per line, takes more than half as much memory as their text may
// take.
void check_lines(const ByteSource& bytes, int64_t max_decompressed_bytes) {
  constexpr int64_t bytes_per_line = 16;
  int64_t compressed = 0, lines = 0;
  for (const SourceFile& file : bytes.files()) {
    if (!detail::is_compressed(file.path)) continue;
    std::error_code unknown;
    if (const auto size = std::filesystem::file_size(file.path, unknown); !unknown)
      compressed += static_cast<int64_t>(size);
    bytes.scan(file.begin, static_cast<size_t>(file.size),
               [&](std::span<const uint8_t> piece) { lines += std::count(piece.begin(), piece.end(), '\n'); });
    if (lines > detail::max_decompressed(max_decompressed_bytes, compressed) / bytes_per_line)
      bad_text(file.path,
               fmt::format("{} compressed bytes hold more than {} lines; if you trust the file, raise "
                           "max_decompressed_bytes in the options, or decompress it",
                           compressed, detail::max_decompressed(max_decompressed_bytes, compressed) / bytes_per_line));
  }
}

}  // namespace

detail::Utf8Sequence detail::utf8_sequence(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) -> unsigned {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return {1, true};
  if (first < 0xC2 || first > 0xF4) return {1, false};
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  const unsigned least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < least || byte(1) > most) return {1, false};
  for (size_t i = 2; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return {i, false};
  return {length, true};
}

int64_t first_invalid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const auto [bytes, is_whole] = detail::utf8_sequence(text, at);
    if (!is_whole) return static_cast<int64_t>(at);
    at += bytes;
  }
  return -1;
}

void detail::check_tokens(const ByteSource& bytes, int64_t item_size) {
  for (const SourceFile& file : bytes.files()) {
    if (file.size % item_size == 0) continue;
    fail(ErrorKind::invalid_file, "open",
         "{}: {} bytes are not a whole number of tokens of {} bytes; is it truncated, or of another element type?",
         file.path, file.size, item_size);
  }
}

// ---- lines ----------------------------------------------------------------------------------------------------------

LineSource LineSource::open(const std::vector<std::string>& paths, const TextOptions& options) {
  ByteSource bytes = ByteSource::open(
      paths,
      {.extensions = options.extensions, .decompress = true, .max_decompressed_bytes = options.max_decompressed_bytes});
  check_lines(bytes, options.max_decompressed_bytes);
  return LineSource(std::move(bytes), options.check_utf8);
}

LineSource LineSource::from_string(std::string text, std::string name) {
  return LineSource(ByteSource::from_string(std::move(text), std::move(name)), true);
}

LineSource::LineSource(ByteSource bytes, bool check_utf8) : bytes_(std::move(bytes)), check_utf8_(check_utf8) {
  Index index;
  for (size_t file = 0; file < bytes_.files().size(); ++file) add_lines(file, index);
  *this = with(std::move(index));
}

LineSource LineSource::with(Index index) const {
  if (index.begins.empty()) bad_text(bytes_.files().front().path, "no line in it or in the other files");
  LineSource source = *this;
  source.index_ = std::make_shared<const Index>(std::move(index));
  return source;
}

bool LineSource::is_empty(const Line& line) const {
  uint8_t only = '\r';  // the '\r' of "\r\n"
  if (line.end - line.begin == 1) bytes_.read(line.begin, {&only, 1});
  return line.end - line.begin <= 1 && only == '\r';
}

LineSource LineSource::without_empty_ends() const {
  const Index& all = index();
  Index kept;
  kept.begins.reserve(all.begins.size());
  for (size_t i = 0; i < all.files.size(); ++i) {
    const FileLines& lines = all.files[i];
    int64_t end = i + 1 < all.files.size() ? all.files[i + 1].first : size();
    while (end > lines.first && is_empty(line(end - 1))) --end;
    if (end == lines.first) continue;
    kept.files.push_back({lines.file, static_cast<int64_t>(kept.begins.size()), line(end - 1).end});
    kept.begins.insert(kept.begins.end(), all.begins.begin() + lines.first, all.begins.begin() + end);
  }
  return with(std::move(kept));
}

void LineSource::add_lines(size_t number, Index& index) const {
  const SourceFile& file = bytes_.files()[number];
  const int64_t end = file.begin + file.size;
  const auto first = static_cast<int64_t>(index.begins.size());
  int64_t begin = file.begin + (has_byte_order_mark(bytes_, file) ? 3 : 0), at = begin, last_end = begin;
  bytes_.scan(begin, end - begin, [&](std::span<const uint8_t> piece) {
    while (const void* newline = piece.empty() ? nullptr : std::memchr(piece.data(), '\n', piece.size())) {
      const auto length = static_cast<const uint8_t*>(newline) - piece.data();
      index.begins.push_back(begin);
      last_end = at + length;
      begin = at = last_end + 1;
      piece = piece.subspan(static_cast<size_t>(length) + 1);
    }
    at += static_cast<int64_t>(piece.size());
  });
  if (begin < end) {
    index.begins.push_back(begin);
    last_end = end;
  }
  if (first == static_cast<int64_t>(index.begins.size())) return;
  index.begins[static_cast<size_t>(first)] = ~index.begins[static_cast<size_t>(first)];
  index.files.push_back({number, first, last_end});
}

const LineSource::Index& LineSource::index() const { return tessera::detail::held(index_, "LineSource", "source"); }

int64_t LineSource::size() const { return static_cast<int64_t>(index().begins.size()); }

const LineSource::FileLines& LineSource::file_of(int64_t line) const {
  const auto& files = index().files;
  return *std::prev(std::upper_bound(files.begin(), files.end(), line,
                                     [](int64_t number, const FileLines& lines) { return number < lines.first; }));
}

// Returns the begin and the end of a line, which is one byte before the next line begins, or FileLines::end for the
// last line of a file.
LineSource::Line LineSource::line(int64_t index) const {
  const auto& begins = this->index().begins;
  const auto i = static_cast<size_t>(index);
  const bool is_last = i + 1 == begins.size() || begins[i + 1] < 0;
  return {begins[i] < 0 ? ~begins[i] : begins[i], is_last ? file_of(index).end : begins[i + 1] - 1};
}

std::string LineSource::operator[](int64_t index) const {
  check_index(index, size(), "line");
  const Line line = this->line(index);
  std::string text(static_cast<size_t>(line.end - line.begin), '\0');
  bytes_.read(line.begin, {reinterpret_cast<uint8_t*>(text.data()), text.size()});
  if (text.ends_with('\r')) text.pop_back();
  if (check_utf8_ && first_invalid_utf8(text) >= 0) check_text(text, where(index));
  return text;
}

std::string LineSource::where(int64_t index) const {
  check_index(index, size(), "line");
  const FileLines& lines = file_of(index);
  return fmt::format("{}, line {}", bytes_.files()[lines.file].path, index - lines.first + 1);
}

// ---- files ----------------------------------------------------------------------------------------------------------

DocumentSource::DocumentSource(std::vector<FileEntry> files, const TextOptions& options)
    : files_(std::make_shared<const std::vector<FileEntry>>(std::move(files))),
      check_utf8_(options.check_utf8),
      max_decompressed_bytes_(options.max_decompressed_bytes) {}

DocumentSource DocumentSource::open(const std::vector<std::string>& paths, const TextOptions& options) {
  return DocumentSource(list_files(paths, options.extensions), options);
}

int64_t DocumentSource::size() const {
  return static_cast<int64_t>(tessera::detail::held(files_, "DocumentSource", "source").size());
}

Document DocumentSource::operator[](int64_t index) const {
  const auto& files = tessera::detail::held(files_, "DocumentSource", "source");
  check_index(index, size(), "file");
  const FileEntry& file = files[static_cast<size_t>(index)];
  std::ifstream in(file.path, std::ios::binary);
  if (!in) bad_text(file.path, fmt::format("{}; the file must be readable", std::strerror(errno)));
  Document document{file.path, std::string(static_cast<size_t>(file.size), '\0')};
  in.read(document.text.data(), static_cast<std::streamsize>(file.size));
  if (in.gcount() != file.size || in.peek() != std::ifstream::traits_type::eof()) {
    std::error_code unknown;
    bad_text(file.path, fmt::format("the file changed after it was listed: it had {} bytes, and now has {}", file.size,
                                    std::filesystem::file_size(file.path, unknown)));
  }
  if (detail::is_compressed(file.path))
    document.text = decompressed_text(document.text, file.path, max_decompressed_bytes_);
  if (check_utf8_) check_text(document.text, file.path);
  return document;
}

std::string DocumentSource::describe() const {
  const auto& files = tessera::detail::held(files_, "DocumentSource", "source");
  uint64_t hash = 0xcbf29ce484222325;
  int64_t bytes = 0;
  for (const FileEntry& file : files) {
    hash = (hash ^ static_cast<uint64_t>(file.size)) * 0x100000001b3;
    bytes += file.size;
  }
  return detail::describe_files(files.size(), bytes, hash) + " | documents";
}

}  // namespace tessera::data
