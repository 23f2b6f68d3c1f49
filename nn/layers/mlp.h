// Mlp: two linear layers with a GELU between them.
#pragma once

#include "nn/layers/linear.h"

namespace tessera::nn {

struct MlpOptions {
  Initializer up_init = init::lecun_normal();
  Initializer down_init = init::lecun_normal();
};

// (..., embed) -> (..., embed): down(gelu(up(x))), GELU in its tanh approximation.
struct Mlp {
  Linear up;    // embed -> hidden
  Linear down;  // hidden -> embed

  static Mlp init(const Key& key, const Axis& embed, const Axis& hidden, const MlpOptions& options = {});
  Array operator()(const Array& x) const;
};

}  // namespace tessera::nn
