// Measures the resident memory of this process.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace tessera::testing {

inline int64_t resident_bytes() {
  int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace tessera::testing
