// use_caching_cpu_allocator: what a training step frees stays with the program's tensors, for the next step.
#pragma once

#include <cstdint>

namespace tessera::detail {

// From now on the memory of freed CPU tensors is kept in lists by size, and the next tensors are made of it: a step
// that makes and frees what the one before made and freed asks the system for no page. All that is kept goes back
// before more would be held than one and a half times what tensors had at once. Of other values of less than 32 MB
// glibc keeps the memory too, until then. Called when a gradient is first asked for. Where the program has set an
// allocator of CPU tensors of its own, or the environment says how the C library treats freed memory
// (MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_, GLIBC_TUNABLES), nothing happens.
void use_caching_cpu_allocator();

// What the tensors made since then have of the system, used or kept; in bytes.
int64_t memory_of_tensors();

}  // namespace tessera::detail
