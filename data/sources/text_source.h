// Text as records: the lines of files, and whole files, also compressed ones.
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

// Returns the index of the first byte that is not valid UTF-8, or -1. (RFC 3629: no overlong forms, no surrogates,
// nothing above U+10FFFF.)
int64_t first_invalid_utf8(std::string_view text);

namespace detail {
// Returns the sequence that begins at `at`: its number of bytes, and whether it is complete and valid UTF-8. If not,
// `bytes` counts the bytes that are valid (Unicode's table 3-7), at least one.
struct Utf8Sequence {
  size_t bytes;
  bool is_whole;
};
Utf8Sequence utf8_sequence(std::string_view text, size_t at);
}  // namespace detail

struct TextOptions {
  std::vector<std::string> extensions = {};  // files of a folder to read, for example {".txt"}; empty: every file
  // Whether bytes that are not UTF-8 are an Error that names the file and the byte. If false, they are part of the
  // record.
  bool check_utf8 = true;
  // As in ByteSourceOptions. For documents, the limit of each compressed file (0: 40 for each compressed byte, and 256
  // KiB). For lines, compressed files may hold one line for each 16 bytes of the limit.
  int64_t max_decompressed_bytes = 0;
};

// Compressed files: files that end in .gz (gzip) or .zst (Zstandard) are decompressed. Extension filters match their
// whole names: {".jsonl", ".jsonl.gz"}. Such a file cannot be read from the middle. So the files of `lines` are
// decompressed when the source is opened, in one pass, and stay in memory; each file's compressed bytes are also in
// memory while it is read. If that is too much memory, decompress the files first: uncompressed files are mapped, and
// take 8 bytes per line. A whole document is decompressed each time it is requested. A file that is damaged, or that
// holds more than max_decompressed_bytes, is an Error (invalid_file) that names it. A build needs zlib for .gz and
// libzstd for .zst.

// Reads the lines of files, also empty ones, without their line ends (\n or \r\n). A file's last line needs no line
// end, and no line continues in the next file. A byte order mark at a file's beginning is not part of its first line.
// Opening reads all files once to find the lines, and keeps 8 bytes per line. Copies share them.
class LineSource {
 public:
  // Opens files and folders. Errors: as ByteSource::open; no line in all the files (invalid_file).
  static LineSource open(const std::vector<std::string>& paths, const TextOptions& options = {});
  static LineSource from_string(std::string text, std::string name = "memory");

  int64_t size() const;

  // Returns a line.
  // Errors
  //   invalid_argument: index outside [0, size())
  //   invalid_file, which names file and line: bytes that are not UTF-8
  std::string operator[](int64_t index) const;

  // Returns "notes/a.txt, line 17", counted from 1.
  std::string where(int64_t index) const;
  // Returns the same lines without the empty lines at the end of each file. Error (invalid_file): no line is left.
  LineSource without_empty_ends() const;
  std::string describe() const { return bytes_.describe() + " | lines"; }

 private:
  struct Line {
    int64_t begin, end;
  };
  struct FileLines {
    size_t file;
    int64_t first;  // index of the first line
    int64_t end;    // end of the last line
  };
  struct Index {
    std::vector<int64_t> begins;   // begin of each line; ~begin for the first line of a file
    std::vector<FileLines> files;  // files that have lines
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

// Returns the lines as a dataset of std::string: lines({"corpus"}, {.extensions = {".txt"}}).map(tokenize)
inline auto lines(const std::vector<std::string>& paths, const TextOptions& options = {}) {
  return from_source(LineSource::open(paths, options));
}

// One file's path and text.
struct Document {
  std::string path;
  std::string text;
};

// Reads whole files unchanged, each when its record is requested. list_files (data/sources/file_list.h) defines the
// files and their order.
class DocumentSource {
 public:
  // Lists the files. Errors: as list_files.
  static DocumentSource open(const std::vector<std::string>& paths, const TextOptions& options = {});

  int64_t size() const;

  // Reads one file.
  // Errors
  //   invalid_argument: index outside [0, size())
  //   invalid_file, which names the file: it cannot be read, its size differs from when the source was opened, it is
  //     compressed and damaged or too large, or it is not UTF-8
  Document operator[](int64_t index) const;

  // Returns "3 files, 1024 bytes, 1f00a3c2". The checksum is of the sizes only, because opening reads no file.
  std::string describe() const;

 private:
  DocumentSource(std::vector<FileEntry> files, const TextOptions& options);

  std::shared_ptr<const std::vector<FileEntry>> files_;
  bool check_utf8_;
  int64_t max_decompressed_bytes_;
};

// Returns whole files as a dataset of Documents.
inline auto documents(const std::vector<std::string>& paths, const TextOptions& options = {}) {
  return from_source(DocumentSource::open(paths, options));
}

}  // namespace tessera::data
