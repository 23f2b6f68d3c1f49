// WeightNorm, which separates length and direction of kernels, and SpectralNorm, which uses the power method.
#include "nn/layers/weight_norm.h"

#include "nn/layers/shapes.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/linalg/linear_algebra.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/operations/shape/joining.h"
#include "sharding/operations/shape/shapes.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"

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

namespace {

Array matrix(const Array& kernel) { return kernel.ndim() == 2 ? kernel : reshape(kernel, {-1, kernel.shape(-1)}); }

Array unit(const Array& x, double eps) { return x / maximum(norm(x), eps); }

Array placed_like(const Array& x, const Array& like) {
  return x.is_committed() && like.is_committed() ? with_sharding_constraint(x, like.sharding()) : x;
}

void check_all_there(const PowerIteration& power, const Array& kernel) {
  check_there("SpectralNorm", "kernel", kernel);
  check_there("SpectralNorm", "power.in", power.in), check_there("SpectralNorm", "power.out", power.out);
}

}  // namespace

PowerIteration PowerIteration::init(const Key& key, const Param& kernel, const SpectralNormOptions& options) {
  check_positive("SpectralNorm", "num_power_iterations", options.num_power_iterations);
  check_eps("SpectralNorm", options.eps);
  check_there("SpectralNorm", "kernel", kernel);
  const auto [a, b] = split<2>(key);
  const Array w = matrix(kernel);
  const AxisName in_name = kernel.value.ndim() == 2 ? axis_of(kernel, 0) : AxisName(none);
  const auto start = [&](const Key& k, int64_t size) {
    return unit(astype(normal(k, {size}), kernel.value.dtype()), options.eps);
  };
  PowerIteration power{.in = {start(a, w.shape(0)), {in_name}},
                       .out = {start(b, w.shape(1)), {axis_of(kernel, -1)}},
                       .iterations = 15,
                       .eps = options.eps};
  power.step(kernel);
  power.iterations = options.num_power_iterations;
  return power;
}

void PowerIteration::step(const Array& kernel) {
  check_positive("SpectralNorm", "iterations", iterations);
  check_eps("SpectralNorm", eps);
  check_all_there(*this, kernel);
  const Array w = stop_gradient(matrix(kernel));
  Array x = stop_gradient(in), y = stop_gradient(out);
  for (int64_t i = 0; i < iterations; ++i) {
    y = unit(matmul(x, w), eps);
    x = unit(matmul(w, y), eps);
  }
  in.value = placed_like(x, in);
  out.value = placed_like(y, out);
}

Array PowerIteration::normalized(const Array& kernel) const {
  check_all_there(*this, kernel);
  const Array u = stop_gradient(in), v = stop_gradient(out);
  return kernel / sum(matmul(u, matrix(kernel)) * v);
}

}  // namespace tessera::nn
