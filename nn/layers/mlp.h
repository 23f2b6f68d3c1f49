// Multi-layer perceptrons: Mlp with a GELU between two linear layers, and GatedMlp.
#pragma once

#include "nn/layers/linear.h"

namespace tessera::nn {

struct MlpOptions {
  Initializer up_init = init::lecun_normal();  // of gate, too
  Initializer down_init = init::lecun_normal();
};

// (..., embed) -> (..., embed): down(gelu(up(x))), GELU in its tanh approximation.
struct Mlp {
  Linear up;    // embed -> hidden
  Linear down;  // hidden -> embed

  static Mlp init(const Key& key, const Axis& embed, const Axis& hidden, const MlpOptions& options = {});
  Array operator()(Operand x) const;
};

// (..., embed) -> (..., embed): down(silu(gate(x)) * up(x)), "SwiGLU", without biases. Shazeer, "GLU variants improve
// transformer" (2020).
struct GatedMlp {
  Linear gate, up;  // embed -> hidden
  Linear down;      // hidden -> embed

  static GatedMlp init(const Key& key, const Axis& embed, const Axis& hidden, const MlpOptions& options = {});
  Array operator()(Operand x) const;
};

}  // namespace tessera::nn
