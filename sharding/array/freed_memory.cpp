// glibc's two ways to give memory back, closed.
#include "sharding/array/freed_memory.h"

#include <malloc.h>

#include <cstdlib>

namespace tessera::detail {

void keep_freed_memory() {
  static const bool once = [] {
    for (const char* variable : {"MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"})
      if (std::getenv(variable)) return true;
#if defined(M_MMAP_MAX) && defined(M_TRIM_THRESHOLD)
    mallopt(M_MMAP_MAX, 0);
    mallopt(M_TRIM_THRESHOLD, -1);
#endif
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace tessera::detail
