// Finds lines, reads files, and looks at their bytes.
#include "data/text_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

#include "data/decompress.h"
#include "data/token_source.h"
#include "nn/tree/tree.h"
#include "sharding/diagnostics/moved_from.h"

namespace tessera::data {

namespace {

[[noreturn]] void bad_text(const std::string& where, const std::string& what) {
  fail(ErrorKind::bad_file, "read", where + ": " + what);
}

void check_index(int64_t index, int64_t size, const char* what) {
  if (index >= 0 && index < size) return;
  fail(ErrorKind::bad_argument, "read",
       std::string(what) + " " + std::to_string(index) + ", expected one of [0, " + std::to_string(size) + ")");
}

void check_text(std::string_view text, const std::string& where) {
  const int64_t at = first_invalid_utf8(text);
  if (at < 0) return;
  bad_text(where, fmt::format("byte {} (0x{:02x}) is not UTF-8; convert the file, or read it as it is with "
                              "{{.check_utf8 = false}}",
                              at, static_cast<unsigned char>(text[static_cast<size_t>(at)])));
}

std::string decompressed_text(const std::string& compressed, const std::string& path) {
  std::string text;
  const std::span bytes(reinterpret_cast<const uint8_t*>(compressed.data()), compressed.size());
  for (const auto& piece : detail::decompressed(bytes, path))
    text.append(reinterpret_cast<const char*>(piece.bytes.get()), static_cast<size_t>(piece.size));
  return text;
}

bool has_byte_order_mark(const ByteSource& bytes, const SourceFile& file) {
  uint8_t mark[3] = {};
  if (file.size >= 3) bytes.read(file.begin, mark);
  return mark[0] == 0xef && mark[1] == 0xbb && mark[2] == 0xbf;
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
    const auto [bytes, is_whole] = detail::utf8_sequence(text, at);
    if (!is_whole) return static_cast<int64_t>(at);
    at += bytes;
  }
  return -1;
}

void detail::check_tokens(const ByteSource& bytes, int64_t item_size) {
  for (const SourceFile& file : bytes.files()) {
    if (file.size % item_size == 0) continue;
    fail(ErrorKind::bad_file, "open",
         file.path + ": " + std::to_string(file.size) + " bytes are no whole number of tokens of " +
             std::to_string(item_size) + " bytes; is it cut short, or of another element type?");
  }
}

// ---- lines ----------------------------------------------------------------------------------------------------------

LineSource LineSource::open(const std::vector<std::string>& paths, const TextOptions& options) {
  return LineSource(ByteSource::open(paths, {.extensions = options.extensions, .decompress = true}),
                    options.check_utf8);
}

LineSource LineSource::from_string(std::string text, std::string name) {
  return LineSource(ByteSource::from_string(std::move(text), std::move(name)), true);
}

LineSource::LineSource(ByteSource bytes, bool check_utf8) : bytes_(std::move(bytes)), check_utf8_(check_utf8) {
  std::vector<Line> lines;
  for (const SourceFile& file : bytes_.files()) add_lines(file, lines);
  *this = with(std::move(lines));
}

LineSource LineSource::with(std::vector<Line> lines) const {
  if (lines.empty()) bad_text(bytes_.files().front().path, "no line in it or in the other files");
  LineSource source = *this;
  source.lines_ = std::make_shared<const std::vector<Line>>(std::move(lines));
  return source;
}

bool LineSource::is_empty(const Line& line) const {
  uint8_t only = '\r';  // of "\r\n"
  if (line.end - line.begin == 1) bytes_.read(line.begin, {&only, 1});
  return line.end - line.begin <= 1 && only == '\r';
}

LineSource LineSource::without_empty_ends() const {
  std::vector<Line> kept;
  size_t next = 0;
  const auto& lines = tessera::detail::held(lines_, "LineSource", "source");
  for (const SourceFile& file : bytes_.files()) {
    const size_t before = kept.size();
    while (next < lines.size() && lines[next].begin < file.begin + file.size) kept.push_back(lines[next++]);
    while (kept.size() > before && is_empty(kept.back())) kept.pop_back();
  }
  return with(std::move(kept));
}

void LineSource::add_lines(const SourceFile& file, std::vector<Line>& lines) const {
  const int64_t end = file.begin + file.size;
  int64_t begin = file.begin + (has_byte_order_mark(bytes_, file) ? 3 : 0), at = begin;
  bytes_.scan(begin, end - begin, [&](std::span<const uint8_t> piece) {
    while (const void* newline = piece.empty() ? nullptr : std::memchr(piece.data(), '\n', piece.size())) {
      const auto length = static_cast<const uint8_t*>(newline) - piece.data();
      lines.push_back({begin, at + length});
      begin = at = at + length + 1;
      piece = piece.subspan(static_cast<size_t>(length) + 1);
    }
    at += static_cast<int64_t>(piece.size());
  });
  if (begin < end) lines.push_back({begin, end});
}

int64_t LineSource::size() const {
  return static_cast<int64_t>(tessera::detail::held(lines_, "LineSource", "source").size());
}

std::string LineSource::operator[](int64_t index) const {
  const auto& lines = tessera::detail::held(lines_, "LineSource", "source");
  check_index(index, size(), "line");
  const Line line = lines[static_cast<size_t>(index)];
  std::string text(static_cast<size_t>(line.end - line.begin), '\0');
  bytes_.read(line.begin, {reinterpret_cast<uint8_t*>(text.data()), text.size()});
  if (text.ends_with('\r')) text.pop_back();
  if (check_utf8_ && first_invalid_utf8(text) >= 0) check_text(text, where(index));
  return text;
}

std::string LineSource::where(int64_t index) const {
  const auto& lines = tessera::detail::held(lines_, "LineSource", "source");
  check_index(index, size(), "line");
  const auto& files = bytes_.files();
  const int64_t begin = lines[static_cast<size_t>(index)].begin;
  const auto file =
      std::upper_bound(files.begin(), files.end(), begin, [](int64_t at, auto& f) { return at < f.begin; }) - 1;
  const auto first = std::lower_bound(lines.begin(), lines.end(), file->begin,
                                      [](const Line& line, int64_t at) { return line.begin < at; });
  return file->path + ", line " + std::to_string(index - (first - lines.begin()) + 1);
}

// ---- files ----------------------------------------------------------------------------------------------------------

DocumentSource::DocumentSource(std::vector<FileEntry> files, bool check_utf8)
    : files_(std::make_shared<const std::vector<FileEntry>>(std::move(files))), check_utf8_(check_utf8) {}

DocumentSource DocumentSource::open(const std::vector<std::string>& paths, const TextOptions& options) {
  return DocumentSource(list_files(paths, options.extensions), options.check_utf8);
}

int64_t DocumentSource::size() const {
  return static_cast<int64_t>(tessera::detail::held(files_, "DocumentSource", "source").size());
}

Document DocumentSource::operator[](int64_t index) const {
  const auto& files = tessera::detail::held(files_, "DocumentSource", "source");
  check_index(index, size(), "file");
  const FileEntry& file = files[static_cast<size_t>(index)];
  std::ifstream in(file.path, std::ios::binary);
  if (!in) bad_text(file.path, std::string(std::strerror(errno)) + "; the file must be readable");
  Document document{file.path, {std::istreambuf_iterator<char>(in), {}}};
  if (static_cast<int64_t>(document.text.size()) != file.size) {
    bad_text(file.path, "the file changed underneath, it had " + std::to_string(file.size) +
                            " bytes when it was listed, and now has " + std::to_string(document.text.size()));
  }
  if (detail::is_compressed(file.path)) document.text = decompressed_text(document.text, file.path);
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
