// Implements Linear and its LoRA adapter.
#include "nn/layers/linear.h"

#include <cmath>

#include "nn/layers/shapes.h"
#include "sharding/array/array_impl.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/linalg/linear_algebra.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::nn {

Linear Linear::init(const Key& key, const Axis& in, const Axis& out, const LinearOptions& options) {
  check_axis("Linear", in), check_axis("Linear", out);
  const auto param = [&](const char* option, const Initializer& initializer, const Key& k, const Shape& shape) {
    return options.dtypes.param(initial("Linear", option, initializer, k, shape));
  };
  Linear linear{.kernel = {param("kernel_init", options.kernel_init, key, {in.size, out.size}), {in, out}},
                .bias = {},
                .dtypes = options.dtypes};
  if (options.bias) linear.bias = Param{param("bias_init", options.bias_init, fold_in(key, 1), {out.size}), {out}};
  return linear;
}

Array Linear::operator()(Operand x) const {
  const LayerScope scope(*this, x);
  check_features("Linear", x.array(), kernel);
  const Array in = dtypes.in(x.array());
  const auto base = [&](const Param& p) { return lora ? stop_gradient(dtypes.in(p)) : dtypes.in(p); };
  const Array weight = base(kernel);
  Array y = bias ? tessera::detail::linear(in, weight, base(*bias)) : matmul(in, weight);
  if (lora) y = y + lora->scale * matmul(matmul(in, dtypes.in(lora->a)), dtypes.in(lora->b));
  return dtypes.out(y);
}

namespace {

// Returns a LoRA factor with dimension `dim` sharded like the kernel's. The rank dimension is replicated.
Array placed_along(const Array& x, const Array& kernel, int dim) {
  if (!kernel.is_committed()) return x;
  std::vector<SpecEntry> entries = kernel.sharding().spec().entries();
  entries.resize(2);
  entries[1 - dim] = SpecEntry();
  Array placed = place_parameter(x, NamedSharding(kernel.sharding().mesh(), PartitionSpec(entries)),
                                 kernel.path().empty() ? "" : kernel.path() + (dim == 0 ? ".lora.a" : ".lora.b"));
  placed.impl()->mesh_rules = kernel.impl()->mesh_rules;
  return placed;
}

}  // namespace

Linear with_lora(const Key& key, const Linear& linear, const LoraOptions& options) {
  check_positive("with_lora", "rank", options.rank);
  if (!std::isfinite(options.alpha))
    fail(ErrorKind::invalid_argument, "with_lora", "alpha = {}, expected a number.", options.alpha);
  if (linear.lora)
    fail(ErrorKind::invalid_argument, "with_lora", "{} already has a LoRA adapter. Merge it first: merge_lora(linear).",
         linear.kernel.value.path().empty() ? "the layer" : linear.kernel.value.path());
  const Array& kernel = linear.kernel;
  check_there("with_lora", "kernel", kernel);
  check_dims("with_lora", kernel, 2, "a kernel (in, out)");
  const AxisName& rank = options.rank_name;
  const Array a = astype(init::fan_in_uniform()(key, {kernel.shape(0), options.rank}), kernel.dtype());
  Linear changed = linear;
  changed.lora = LowRank{.a = {placed_along(a, kernel, 0), {axis_of(linear.kernel, 0), rank}},
                         .b = {placed_along(zeros({options.rank, kernel.shape(1)}, kernel.dtype()), kernel, 1),
                               {rank, axis_of(linear.kernel, 1)}},
                         .scale = options.alpha / static_cast<double>(options.rank)};
  return changed;
}

Linear merge_lora(const Linear& linear) {
  if (!linear.lora) return linear;
  Linear merged = linear;
  const Array& kernel = linear.kernel;
  check_there("merge_lora", "kernel", kernel);
  check_there("merge_lora", "lora.a", linear.lora->a), check_there("merge_lora", "lora.b", linear.lora->b);
  const Array sum = kernel + linear.lora->scale * matmul(linear.lora->a, linear.lora->b);
  merged.kernel.value = place_parameter_as(astype(sum, kernel.dtype()), kernel);
  merged.lora.reset();
  return merged;
}

}  // namespace tessera::nn
