// Mlp's two layers.
#include "nn/layers/mlp.h"

namespace tessera::nn {

Mlp Mlp::init(const Key& key, const Axis& embed, const Axis& hidden, const MlpOptions& options) {
  const auto [up, down] = split<2>(key);
  return {.up = Linear::init(up, embed, hidden, {.kernel_init = options.up_init}),
          .down = Linear::init(down, hidden, embed, {.kernel_init = options.down_init})};
}

Array Mlp::operator()(const Array& x) const { return down(gelu(up(x))); }

}  // namespace tessera::nn
