// Lengths and directions of kernels.
#include "nn/layers/weight_norm.h"

#include "nn/layers/shapes.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/reduce/reductions.h"

namespace tessera::nn {

namespace {

Array norms(const Array& kernel) { return norm(kernel, tessera::detail::consecutive_dims(kernel.ndim() - 1)); }

}  // namespace

Array with_length(const Array& kernel, const Array& length) {
  check_there("WeightNorm", "kernel", kernel), check_there("WeightNorm", "length", length);
  return kernel * (length / norms(kernel));
}

Param column_norms(const Param& kernel) {
  check_there("WeightNorm", "kernel", kernel);
  return {norms(kernel), {axis_of(kernel, -1)}};
}

}  // namespace tessera::nn
