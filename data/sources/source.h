// ByteSource: the bytes of files and folders as one long sequence with random access.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tessera::data {

struct ByteSourceOptions {
  // Which files of a folder are read: {".h", ".cuh"}. Empty: every file. Files named directly are always read.
  std::vector<std::string> extensions = {};
  // Files of at least this many bytes are memory-mapped, smaller ones are read into one buffer when the source is
  // opened: a process may hold some 65,000 maps (vm.max_map_count), and a folder may hold more small files. A number
  // above the sizes of all files maps none: they take memory, and what happens to them later does not matter.
  int64_t map_from = 1 << 20;
  // Whether files that end in .gz or .zst stand for what they hold: it is decompressed into memory when the source is
  // opened, one file after the other, and stays there whole as long as the source lives, so that any byte is at hand.
  // Needs zlib or libzstd.
  bool decompress = false;
  // How many bytes the compressed files may hold together; more is an Error before they are in memory. 0: 40 for each
  // compressed byte, and 4 MiB. Raise it for files of yours that compress better.
  int64_t max_decompressed_bytes = 0;
};

// Where the bytes of one file lie in the sequence.
struct SourceFile {
  std::string path;
  int64_t begin = 0;
  int64_t size = 0;
};

namespace detail {
// Error (invalid_argument) unless [offset, offset + count) lies within [0, size); `what` names the items in the
// message.
void check_range(const char* what, int64_t offset, size_t count, int64_t size);
}  // namespace detail

// An immutable sequence of bytes: the files one after another with nothing between them, so its size is the sum of
// theirs. Copies share the bytes; any number of threads may read at once.
//
// The files must not be changed while the source lives. A change of a mapped file is noticed: every few milliseconds
// a read looks at the file's size and time of change, and read() and scan() throw an Error (invalid_file) that names
// the file if they differ. (A file that is replaced by another of the same name is not changed: the source goes on with
// the old file.) Bytes that are cut off in the milliseconds after a look, or that a failing disk does not give, end the
// process when they are read (SIGBUS), as in every program that maps files. Where that may happen, set
// ByteSourceOptions::map_from above the files' sizes.
class ByteSource {
 public:
  using value_type = uint8_t;

  // Opens files and folders; list_files() in data/sources/file_list.h says which files, in which order, and the errors
  // for missing and odd paths. Further errors (invalid_file): a file that cannot be opened, read or mapped, a file that
  // changes its size meanwhile, a compressed file that is damaged or holds too much, and no bytes in all files
  // together.
  static ByteSource open(const std::vector<std::string>& paths, const ByteSourceOptions& options = {});

  // Bytes in memory; `name` stands in for a path in where(). Error (invalid_argument) if there are none.
  static ByteSource from_string(std::string bytes, std::string name = "memory");

  int64_t size() const;  // bytes, at least 1

  // Copies bytes [offset, offset + out.size()) to out, across files if need be.
  // Errors: invalid_argument unless they all lie within [0, size()); invalid_file if a file was changed.
  void read(int64_t offset, std::span<uint8_t> out) const;

  // visit(piece) with `count` bytes from offset on, in order, in pieces as they lie in memory, of a mapped file at most
  // 1 MiB at once: nothing is copied.
  // Errors as read; if there is one, what `visit` has seen of that file may be wrong.
  void scan(int64_t offset, int64_t count, const std::function<void(std::span<const uint8_t>)>& visit) const;

  // In the order of the sequence, empty files included.
  const std::vector<SourceFile>& files() const;

  // "3 files, 1024 bytes, 1f00a3c2": how many there are, and a checksum of sizes and of samples of the bytes (the first
  // and last 4096 of every file up to the 1000th, and 64 pieces of 4096 spread over all), wherever the files lie.
  std::string describe() const;

  // "notes/a.txt, byte 17": which byte of which file lies at offset.
  std::string where(int64_t offset) const;

 private:
  struct Impl;
  explicit ByteSource(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace tessera::data
