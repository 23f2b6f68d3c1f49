// How a Linear is made, and what it computes, low-rank change included.
#include "nn/layers/linear.h"

#include "nn/layers/module_scope.h"
#include "nn/layers/shapes.h"
#include "sharding/base/caller.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/linalg/linear_algebra.h"

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
  const CallerScope caller(x.where());
  const ModuleScope scope(*this);
  check_features("Linear", x.array(), kernel);
  const Array in = dtypes.in(x.array());
  const auto base = [&](const Param& p) { return lora ? stop_gradient(dtypes.in(p)) : dtypes.in(p); };
  const Array weight = base(kernel);
  Array y = bias ? tessera::detail::linear(in, weight, base(*bias)) : matmul(in, weight);
  if (lora) y = y + lora->scale * matmul(matmul(in, dtypes.in(lora->a)), dtypes.in(lora->b));
  return dtypes.out(y);
}

}  // namespace tessera::nn
