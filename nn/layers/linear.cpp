// Linear's two lines.
#include "nn/layers/linear.h"

#include "sharding/caller.h"

namespace tessera::nn {

Linear Linear::init(const Key& key, const Axis& in, const Axis& out, const LinearOptions& options) {
  Linear linear{.kernel = {options.kernel_init(key, {in.size, out.size}), {in, out}}, .bias = {}};
  if (options.bias) linear.bias = Param{zeros({out.size}), {out}};
  return linear;
}

Array Linear::operator()(Operand x) const {
  const CallerScope caller(x.where());
  Array y = matmul(x, kernel);
  return bias ? y + *bias : y;
}

}  // namespace tessera::nn
