// Multi-layer perceptrons: Mlp with a GELU between two linear layers, GatedMlp, and DeepMlp of any depth.
#pragma once

#include <optional>
#include <vector>

#include "nn/layers/activation.h"
#include "nn/layers/linear.h"

namespace tessera::nn {

struct MlpOptions {
  Initializer up_init = init::lecun_normal();  // of gate, too
  Initializer down_init = init::lecun_normal();
  std::optional<Activation> activation = {};  // of Mlp GELU, of GatedMlp SiLU unless given
  std::optional<bool> bias = {};              // of Mlp true, of GatedMlp false unless given
  DTypePolicy dtypes = {};
};

// (..., embed) -> (..., embed): down(activation(up(x))), GELU in its tanh approximation unless another is given.
struct Mlp {
  Linear up;    // embed -> hidden
  Linear down;  // hidden -> embed
  Activation activation = {Activation::gelu};

  static Mlp init(const Key& key, const Axis& embed, const Axis& hidden, const MlpOptions& options = {});
  Array operator()(Operand x) const;
};

// (..., embed) -> (..., embed): down(activation(gate(x)) * up(x)), with SiLU "SwiGLU". Shazeer, "GLU variants improve
// transformer" (2020).
struct GatedMlp {
  Linear gate, up;  // embed -> hidden
  Linear down;      // hidden -> embed
  Activation activation = {Activation::silu};

  static GatedMlp init(const Key& key, const Axis& embed, const Axis& hidden, const MlpOptions& options = {});
  Array operator()(Operand x) const;
};

// equinox.nn.MLP's defaults.
struct DeepMlpOptions {
  Activation activation = {Activation::relu};
  Activation final_activation = {Activation::identity};
  LinearOptions linear = {.kernel_init = init::fan_in_uniform()};
};

// (..., in) -> (..., out) through `depth` layers of hidden units, each followed by the activation. Depth 0 is one
// Linear. Both dims of a hidden -> hidden kernel have the same name: rules shard the first, and the second stays whole.
// Error (invalid_argument): a negative depth.
struct DeepMlp {
  std::vector<Linear> layers;  // in -> hidden, hidden -> hidden, ..., hidden -> out
  Activation activation, final_activation;

  static DeepMlp init(const Key& key, const Axis& in, const Axis& hidden, const Axis& out, int64_t depth,
                      const DeepMlpOptions& options = {});
  Array operator()(Operand x) const;
};

}  // namespace tessera::nn
