// Kernel, uses_plain: replace fast paths by plain LibTorch twins, as TESSERA_PLAIN requests.
#pragma once

namespace tessera::detail {

// The fast paths of this component. Each has a twin that calls only LibTorch and returns the same values up to
// rounding. `tests/benchmarks/kernels.py` measures the speedup of each.
enum class Kernel {
  thread_pool,      // parallel_for.h; twin: a loop, and LibTorch's own threads
  matrix_products,  // matmul.cpp: oneDNN; operations/linalg: narrow products transposed; twin: at::mm
  fused_bias,       // at::addmm; twin: at::mm and at::add
  staging_pool,     // staging_pool.h; twin: a new tensor
};

// Returns whether this entry's twin runs. TESSERA_PLAIN is read once: unset or 0 (no twins), 1 (all twins), or names of
// entries, separated by commas. Throws invalid_argument for another value.
bool uses_plain(Kernel kernel);

}  // namespace tessera::detail
