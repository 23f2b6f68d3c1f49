// FileWatch: notices that a mapped file was written to, cut short or made longer since it was opened.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace tessera::data::detail {

// Watches the file that is at a path when the watch is made. A file that is later removed, or replaced by another of
// the same name, counts as unchanged: the map goes on with the old file. Any number of threads may check at once.
class FileWatch {
 public:
  // Error (invalid_file) if there is no file.
  explicit FileWatch(const std::string& path);

  int64_t size() const { return opened_.st_size; }

  // Error (invalid_file), at every call from then on, if the file has another size or time of change than when it was
  // opened. Cheap enough to call before every read: it looks at the file once per tick of the kernel's clock (1 to
  // 4 ms), so a change between two looks is noticed only at the second.
  void check() const;

 private:
  void look() const;

  std::string path_;      // as it was given, for messages
  std::string absolute_;  // valid when the process changes its working directory
  struct stat opened_ = {};
  mutable std::atomic<int64_t> looked_ = -1;
};

}  // namespace tessera::data::detail
