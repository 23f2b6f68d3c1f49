// FileWatch: notices that a file which is mapped was written to, cut short or made longer since it was opened.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace tessera::data::detail {

// Of the file that lies at a path when the watch is made. One that is later removed, or replaced by another of its
// name, is not changed: the map goes on with the old one. Any number of threads may check at once.
class FileWatch {
 public:
  // Error (bad_file) if no file lies there.
  explicit FileWatch(const std::string& path);

  int64_t size() const { return opened_.st_size; }

  // Error (bad_file), at every call from then on, if the file has another size or time of change than when it was
  // opened. Cheap enough to ask before every read: it looks once in a tick of the kernel's clock (1 to 4 ms), and what
  // is read between two looks is not known to be old or new.
  void check() const;

  // Throws the Error of a file that changed: "[read] path: the file changed underneath, `how`; what to do".
  [[noreturn]] void fail_changed(const std::string& how) const;

 private:
  void look() const;

  std::string path_;      // as it was given, for messages
  std::string absolute_;  // wherever the process goes
  struct stat opened_ = {};
  mutable std::atomic<int64_t> looked_ = -1;
};

}  // namespace tessera::data::detail
