// Kernel, uses_plain: selects the plain LibTorch twin of each fast path, by the environment variable TESSERA_PLAIN.
#pragma once

namespace tessera::detail {

// The entries of this component. Each has a twin that calls LibTorch alone and gives the same values up to rounding.
// `tests/benchmarks/kernels.py` measures what each entry gains.
enum class Kernel {
  thread_pool,      // parallel_for.h; twin: a loop, and LibTorch's own threads
  small_tensors,    // small_tensors.h; twin: the dispatcher
  vector_sums,      // sum.h; twin: at::add, term by term
  matrix_products,  // matmul.h: oneDNN, and narrow products transposed; twin: at::mm
  fused_bias,       // at::addmm; twin: at::mm and at::add
  small_graphs,     // a loop over the few nodes of an operation's graph; twin: LibTorch's engine
  staging_pool,     // staging_pool.h; twin: a new tensor
};

// Returns whether this entry's twin runs. TESSERA_PLAIN is read once: unset or 0 (no twins), 1 (all twins), or names of
// entries, separated by commas. Error (invalid_argument): another value.
bool uses_plain(Kernel kernel);

}  // namespace tessera::detail
