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
  // Extensions of the files of a folder that are read: {".h", ".cuh"}. Empty: every file. Files named directly are
  // always read.
  std::vector<std::string> extensions = {};
  // Files of at least this many bytes are memory-mapped; smaller ones are read into one buffer when the source is
  // opened. The limit exists because a process may hold about 65,000 maps (vm.max_map_count), and a folder may hold
  // more small files. A number above the sizes of all files maps none: they take memory, and later changes of the files
  // have no effect.
  int64_t map_from = 1 << 20;
  // Whether files that end in .gz or .zst are decompressed. Opening the source decompresses them one by one into
  // memory. The bytes stay in memory as long as the source lives, so that any byte is available. Needs zlib or libzstd.
  bool decompress = false;
  // Limit for the decompressed bytes of all compressed files together; more is an Error before they are in memory. 0:
  // 40 for each compressed byte, and 4 MiB. Raise it for your own files that compress better.
  int64_t max_decompressed_bytes = 0;
};

// The position of one file's bytes in the sequence.
struct SourceFile {
  std::string path;
  int64_t begin = 0;
  int64_t size = 0;
};

namespace detail {
// Throws Error (invalid_argument) unless [offset, offset + count) is within [0, size); `what` names the items in the
// message.
void check_range(const char* what, int64_t offset, size_t count, int64_t size);
}  // namespace detail

// An immutable sequence of bytes: all files, concatenated. Copies share the bytes; any number of threads may read
// concurrently.
//
// Do not change the files while the source lives. A change of a mapped file is detected: every few milliseconds a read
// checks the file's size and change time. If they differ, read() and scan() throw Error (invalid_file) with the file's
// name. A file that is replaced by another of the same name is not changed: the source keeps the old file.
//
// A read of bytes that were truncated in the milliseconds after a check, or that a failing disk does not return, ends
// the process (SIGBUS). This holds for every program that maps files. If it may happen, set ByteSourceOptions::map_from
// above the files' sizes.
class ByteSource {
 public:
  using value_type = uint8_t;

  // Opens files and folders, in the order of list_files() (data/sources/file_list.h) and with its errors.
  // Further errors (invalid_file): a file that cannot be opened, read or mapped; a file whose size changes meanwhile; a
  // compressed file that is damaged or too large; no bytes in all files together.
  static ByteSource open(const std::vector<std::string>& paths, const ByteSourceOptions& options = {});

  // Returns a source of bytes in memory; where() reports `name` as the path. Error (invalid_argument): no bytes.
  static ByteSource from_string(std::string bytes, std::string name = "memory");

  int64_t size() const;  // bytes, at least 1

  // Copies bytes [offset, offset + out.size()) to `out`, also across files.
  // Errors
  //   invalid_argument: bytes outside [0, size())
  //   invalid_file: a file was changed
  void read(int64_t offset, std::span<uint8_t> out) const;

  // Calls visit(piece) for `count` bytes from `offset` on, in order and without copying. Each piece is contiguous in
  // memory; a piece of a mapped file has at most 1 MiB. Errors: as read. After an error, the bytes of that file that
  // `visit` has seen may be wrong.
  void scan(int64_t offset, int64_t count, const std::function<void(std::span<const uint8_t>)>& visit) const;

  // Returns the files in the order of the sequence, also empty ones.
  const std::vector<SourceFile>& files() const;

  // Returns "3 files, 1024 bytes, 1f00a3c2": the number of files, their bytes, and a checksum of sizes and samples. The
  // samples are the first and last 4096 bytes of every file up to the 1000th, and 64 pieces of 4096 spread over all.
  // The text does not depend on the files' paths.
  std::string describe() const;

  // Returns the file and the byte at the offset: "notes/a.txt, byte 17".
  std::string where(int64_t offset) const;

 private:
  struct Impl;
  explicit ByteSource(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace tessera::data
