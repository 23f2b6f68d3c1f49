// keep_freed_memory: what a training step frees stays with the program, for the next step.
#pragma once

namespace tessera::detail {

// From now on the C library gives no freed memory back to the system: a step that frees as much as the one before, and
// allocates it again, gets no new pages to clear. The program holds what it held at its peak. Called when a gradient is
// first asked for. Nothing happens where the environment says how the C library treats freed memory (MALLOC_MMAP_MAX_,
// MALLOC_TRIM_THRESHOLD_, GLIBC_TUNABLES), or where it is not glibc.
void keep_freed_memory();

}  // namespace tessera::detail
