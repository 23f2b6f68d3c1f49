// The perceptrons' layers.
#include "nn/layers/mlp.h"

#include "sharding/caller.h"

namespace tessera::nn {

Mlp Mlp::init(const Key& key, const Axis& embed, const Axis& hidden, const MlpOptions& options) {
  const auto [up, down] = split<2>(key);
  return {.up = Linear::init(up, embed, hidden, {.kernel_init = options.up_init}),
          .down = Linear::init(down, hidden, embed, {.kernel_init = options.down_init})};
}

Array Mlp::operator()(Operand x) const {
  const CallerScope caller(x.where());
  return down(gelu(up(x)));
}

GatedMlp GatedMlp::init(const Key& key, const Axis& embed, const Axis& hidden, const MlpOptions& options) {
  const auto [gate, up, down] = split<3>(key);
  const LinearOptions in{.bias = false, .kernel_init = options.up_init};
  return {.gate = Linear::init(gate, embed, hidden, in),
          .up = Linear::init(up, embed, hidden, in),
          .down = Linear::init(down, hidden, embed, {.bias = false, .kernel_init = options.down_init})};
}

Array GatedMlp::operator()(Operand x) const {
  const CallerScope caller(x.where());
  return down(silu(gate(x)) * up(x));
}

}  // namespace tessera::nn
