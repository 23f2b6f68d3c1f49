// use_caching_cpu_allocator: caches the memory of freed CPU tensors for the next training step.
#pragma once

#include <cstdint>

namespace tessera {

// Replaces LibTorch's allocator of CPU tensors for the whole program, permanently. Call it first in `main` of a program
// that trains on CPUs. Each training step frees and allocates tensors of the same sizes, and glibc returns their pages
// to the system in between.
//
// The memory of freed tensors is kept in lists by size. All of it is returned to the system before the total would
// exceed one and a half times the peak memory of the tensors. mallopt makes glibc keep other freed blocks below 32 MiB
// as well.
//
// Returns false, and changes nothing, if the program has installed another allocator of CPU tensors, or if the
// environment configures glibc's (MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_, GLIBC_TUNABLES).
bool use_caching_cpu_allocator();

namespace detail {

// Returns the bytes that the caching allocator has taken from the system, in use or cached.
int64_t memory_of_tensors();

}  // namespace detail
}  // namespace tessera
