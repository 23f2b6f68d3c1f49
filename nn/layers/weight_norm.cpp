// Lengths and directions of kernels.
#include "nn/layers/weight_norm.h"

#include <numeric>

#include "sharding/operations.h"

namespace tessera::nn {

namespace {

Array norms(const Array& kernel) {
  Dims in(kernel.ndim() - 1);
  std::iota(in.begin(), in.end(), 0);
  return norm(kernel, in);
}

}  // namespace

Array with_length(const Array& kernel, const Array& length) { return kernel * (length / norms(kernel)); }

Param column_norms(const Param& kernel) { return {norms(kernel), {kernel.axes.back()}}; }

}  // namespace tessera::nn
