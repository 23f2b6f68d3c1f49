// How many threads LibTorch's kernels and the slots of this program may use.
#pragma once

namespace tessera::detail {

// Lowers this thread's number of LibTorch's threads, once, to TESSERA_CPU_THREADS, where that is set. Error
// (invalid_argument): it is no number from 1.
void limit_threads();
// The same; where the variable is not set, to this process's share of the machine's cores, once for the program.
void share_cores();

}  // namespace tessera::detail
