// Text as records: the lines of files, and whole files, also of compressed ones.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/datasets/dataset.h"
#include "data/sources/file_list.h"
#include "data/sources/source.h"

namespace tessera::data {

// The index of the first byte that is not UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF),
// or -1.
int64_t first_invalid_utf8(std::string_view text);

namespace detail {
// The sequence that begins at `at`: its bytes, and whether it is whole and of UTF-8; else the bytes of it that are
// (Unicode's table 3-7), at least one.
struct Utf8Sequence {
  size_t bytes;
  bool is_whole;
};
Utf8Sequence utf8_sequence(std::string_view text, size_t at);
}  // namespace detail

struct TextOptions {
  std::vector<std::string> extensions = {};  // which files of a folder are read: {".txt"}; empty: every file
  // Whether bytes that are not UTF-8 are an Error that names the file and the byte; else they are part of the record.
  bool check_utf8 = true;
  // As in ByteSourceOptions; of documents, how many bytes each compressed file may hold (0: 40 for each compressed
  // byte, and 256 KiB). In `lines`, compressed files may hold one line for each 16 bytes of the limit.
  int64_t max_decompressed_bytes = 0;
};

// Files that end in .gz (gzip) or .zst (Zstandard) stand for the text that they hold; the filter by extension sees
// their whole names: {".jsonl", ".jsonl.gz"}. There is no way into the middle of such a file, so what lines are read
// from is decompressed when the source is opened and stays in memory: as many bytes as the files hold, of each while it
// is read its compressed bytes too, and the time of one pass over all. Where that is too much, decompress the files
// first: those that are not compressed are mapped, and take 8 bytes a line. Whole documents are decompressed each time
// one is asked for. A file that is damaged, or that holds more than max_decompressed_bytes, is an Error (invalid_file)
// that names it; .gz needs zlib and .zst libzstd when the library is built.

// The lines of files, empty ones too, without their line ends (\n or \r\n). A file's last line needs no line end, and
// no line continues in the next file; a byte order mark at a file's beginning is not part of its first line. Opening
// reads all files once, to find the lines, and keeps 8 bytes per line. Copies share them.
class LineSource {
 public:
  // Errors: as ByteSource::open; no line in all the files (invalid_file).
  static LineSource open(const std::vector<std::string>& paths, const TextOptions& options = {});
  static LineSource from_string(std::string text, std::string name = "memory");

  int64_t size() const;

  // Errors: invalid_argument unless index lies within [0, size()); invalid_file, naming file and line, for what is not
  // UTF-8.
  std::string operator[](int64_t index) const;

  // "notes/a.txt, line 17", counted from 1.
  std::string where(int64_t index) const;
  // The same lines without the empty lines at the end of each file. Error (invalid_file): no line is left.
  LineSource without_empty_ends() const;
  std::string describe() const { return bytes_.describe() + " | lines"; }

 private:
  struct Line {
    int64_t begin, end;
  };
  struct FileLines {
    size_t file;
    int64_t first;  // line
    int64_t end;    // of the last line
  };
  struct Index {
    std::vector<int64_t> begins;   // of each line; ~begin for the first line of a file
    std::vector<FileLines> files;  // that have lines
  };
  LineSource(ByteSource bytes, bool check_utf8);
  LineSource with(Index index) const;
  bool is_empty(const Line& line) const;
  void add_lines(size_t file, Index& index) const;
  const Index& index() const;
  const FileLines& file_of(int64_t line) const;
  Line line(int64_t index) const;

  ByteSource bytes_;
  std::shared_ptr<const Index> index_;
  bool check_utf8_;
};

// The lines as a dataset of std::string: lines({"corpus"}, {.extensions = {".txt"}}).map(tokenize)
inline auto lines(const std::vector<std::string>& paths, const TextOptions& options = {}) {
  return from_source(LineSource::open(paths, options));
}

// One file.
struct Document {
  std::string path;
  std::string text;
};

// Whole files as they are, each read when its record is asked for. data/sources/file_list.h says which files, in which
// order.
class DocumentSource {
 public:
  // Errors: as list_files.
  static DocumentSource open(const std::vector<std::string>& paths, const TextOptions& options = {});

  int64_t size() const;

  // Errors: invalid_argument unless index lies within [0, size()); invalid_file, naming the file: it cannot be read,
  // has another size than when the source was opened, is compressed and damaged or holds too much, or is not UTF-8.
  Document operator[](int64_t index) const;

  // "3 files, 1024 bytes, 1f00a3c2": a checksum of the sizes alone, since nothing is read before it is asked for.
  std::string describe() const;

 private:
  DocumentSource(std::vector<FileEntry> files, const TextOptions& options);

  std::shared_ptr<const std::vector<FileEntry>> files_;
  bool check_utf8_;
  int64_t max_decompressed_bytes_;
};

// Whole files as a dataset of Documents.
inline auto documents(const std::vector<std::string>& paths, const TextOptions& options = {}) {
  return from_source(DocumentSource::open(paths, options));
}

}  // namespace tessera::data
