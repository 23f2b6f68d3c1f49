// Limits the memory that a test allocates from here on.
#pragma once

#include <sys/resource.h>

#include <cstddef>
#include <fstream>
#include <string>

namespace tessera::testing {

// Limits the process to `more` additional bytes while the object exists; a larger allocation throws std::bad_alloc. No
// limit under sanitizers, which reserve terabytes and keep freed memory.
class MemoryLimit {
 public:
  explicit MemoryLimit(size_t more) {
    ::getrlimit(RLIMIT_DATA, &before_);
    constexpr size_t max_without_sanitizer = size_t{1} << 36;
    const size_t now = bytes_now();
    struct rlimit limit = before_;
    limit.rlim_cur = now + more;
    if (now < max_without_sanitizer && limit.rlim_cur < before_.rlim_cur) ::setrlimit(RLIMIT_DATA, &limit);
  }
  ~MemoryLimit() { ::setrlimit(RLIMIT_DATA, &before_); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  static size_t bytes_now() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("VmData:")) return std::stoull(line.substr(line.find_first_of("0123456789"))) << 10;
    return 0;
  }

  struct rlimit before_ = {};
};

}  // namespace tessera::testing
