// Compares a file's size and change time with their values when it was opened.
#include "data/sources/file_watch.h"

#include <time.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "sharding/base/fail.h"

namespace tessera::data::detail {

FileWatch::FileWatch(const std::string& path) : path_(path), absolute_(std::filesystem::absolute(path).string()) {
  if (::stat(absolute_.c_str(), &opened_) != 0)
    fail(ErrorKind::invalid_file, "open", "{}: {}; the file must be readable", path, std::strerror(errno));
}

void FileWatch::check() const {
  struct timespec now;
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  const int64_t tick = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  if (looked_.load(std::memory_order_relaxed) == tick) return;
  looked_.store(tick, std::memory_order_relaxed);
  look();
}

void FileWatch::look() const {
  struct stat now;
  if (::stat(absolute_.c_str(), &now) != 0 || now.st_ino != opened_.st_ino || now.st_dev != opened_.st_dev) return;
  std::string how;
  if (now.st_size != opened_.st_size)
    how = fmt::format("it had {} bytes when it was opened, and now has {}", opened_.st_size, now.st_size);
  else if (now.st_mtim.tv_sec != opened_.st_mtim.tv_sec || now.st_mtim.tv_nsec != opened_.st_mtim.tv_nsec)
    how = "it was written to after it was opened";
  else
    return;
  looked_.store(-1, std::memory_order_relaxed);
  fail(ErrorKind::invalid_file, "read",
       "{}: the file changed while it was open: {}; do not change files while they are read, and open them again",
       path_, how);
}

}  // namespace tessera::data::detail
