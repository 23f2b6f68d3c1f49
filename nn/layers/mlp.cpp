// Implements Mlp, GatedMlp and DeepMlp.
#include "nn/layers/mlp.h"

#include "nn/layers/shapes.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/shape/joining.h"

namespace tessera::nn {

namespace {

LinearOptions linear_options(const MlpOptions& options, const Initializer& init, bool bias) {
  return {.bias = bias, .kernel_init = init, .dtypes = options.dtypes};
}

}  // namespace

Mlp Mlp::init(const Key& key, const Axis& embed, const Axis& hidden, const MlpOptions& options) {
  const auto [up, down] = split<2>(key);
  const bool bias = options.bias.value_or(true);
  return {.up = Linear::init(up, embed, hidden, linear_options(options, options.up_init, bias)),
          .down = Linear::init(down, hidden, embed, linear_options(options, options.down_init, bias)),
          .activation = options.activation.value_or(Activation{Activation::gelu})};
}

Array Mlp::operator()(Operand x) const {
  const LayerScope scope(*this, x);
  return down(activation(up(x)));
}

GatedMlp GatedMlp::init(const Key& key, const Axis& embed, const Axis& hidden, const MlpOptions& options) {
  const auto [gate, up, down] = split<3>(key);
  const LinearOptions in = linear_options(options, options.up_init, options.bias.value_or(false));
  return {.gate = Linear::init(gate, embed, hidden, in),
          .up = Linear::init(up, embed, hidden, in),
          .down = Linear::init(down, hidden, embed, linear_options(options, options.down_init, in.bias)),
          .activation = options.activation.value_or(Activation{Activation::silu})};
}

Array GatedMlp::operator()(Operand x) const {
  const LayerScope scope(*this, x);
  return down(activation(gate(x)) * up(x));
}

DeepMlp DeepMlp::init(const Key& key, const Axis& in, const Axis& hidden, const Axis& out, int64_t depth,
                      const DeepMlpOptions& options) {
  if (depth < 0) fail(ErrorKind::invalid_argument, "DeepMlp", "depth {}, expected 0 or more hidden layers.", depth);
  DeepMlp mlp{.layers = {}, .activation = options.activation, .final_activation = options.final_activation};
  const auto keys = split(key, depth + 1);
  for (int64_t i = 0; i <= depth; ++i)
    mlp.layers.push_back(Linear::init(keys[i], i ? hidden : in, i < depth ? hidden : out, options.linear));
  return mlp;
}

Array DeepMlp::operator()(Operand x) const {
  const LayerScope scope(*this, x);
  Array y = x.array();
  for (size_t i = 0; i < layers.size(); ++i) y = (i + 1 < layers.size() ? activation : final_activation)(layers[i](y));
  return y;
}

}  // namespace tessera::nn
