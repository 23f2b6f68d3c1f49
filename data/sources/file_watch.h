// FileWatch: detects that a memory-mapped file was written, truncated or extended since it was opened.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace tessera::data::detail {

// Watches the file that is at `path` when the watch is made. A file that is later removed, or replaced by another of
// the same name, counts as unchanged, because the map keeps the old file. Any number of threads may check concurrently.
class FileWatch {
 public:
  // Starts to watch the file. Error (invalid_file): no such file.
  explicit FileWatch(const std::string& path);

  int64_t size() const { return opened_.st_size; }

  // Throws Error (invalid_file), at every call from then on, if the file's size or change time differs from when it was
  // opened. It is cheap enough to call before every read: it calls stat once per tick of the kernel's clock (1 to 4
  // ms). A change between two such calls is noticed at the second one.
  void check() const;

 private:
  void look() const;

  std::string path_;      // as given, for messages
  std::string absolute_;  // stays valid when the process changes its working directory
  struct stat opened_ = {};
  mutable std::atomic<int64_t> looked_ = -1;
};

}  // namespace tessera::data::detail
