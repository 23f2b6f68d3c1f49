// Multi-layer perceptrons: Mlp with a GELU between two linear layers, GatedMlp, and DeepMlp of any depth.
#pragma once

#include <optional>
#include <vector>

#include "nn/layers/activation.h"
#include "nn/layers/linear.h"

namespace tessera::nn {

struct MlpOptions {
  Initializer up_init = init::lecun_normal();  // initializes up and gate
  Initializer down_init = init::lecun_normal();
  std::optional<Activation> activation = {};  // default: GELU of Mlp, SiLU of GatedMlp
  std::optional<bool> bias = {};              // default: true of Mlp, false of GatedMlp
  DTypePolicy dtypes = {};
};

// Computes down(activation(up(x))): (..., embed) -> (..., embed). The default activation is GELU's tanh approximation.
struct Mlp {
  Linear up;    // embed -> hidden
  Linear down;  // hidden -> embed
  Activation activation = {Activation::gelu};

  static Mlp init(const Key& key, const Axis& embed, const Axis& hidden, const MlpOptions& options = {});
  Array operator()(Operand x) const;
};

// Computes down(activation(gate(x)) * up(x)): (..., embed) -> (..., embed). With SiLU it is called SwiGLU. Shazeer,
// "GLU variants improve transformer" (2020).
struct GatedMlp {
  Linear gate, up;  // embed -> hidden
  Linear down;      // hidden -> embed
  Activation activation = {Activation::silu};

  static GatedMlp init(const Key& key, const Axis& embed, const Axis& hidden, const MlpOptions& options = {});
  Array operator()(Operand x) const;
};

// Defaults of equinox.nn.MLP.
struct DeepMlpOptions {
  Activation activation = {Activation::relu};
  Activation final_activation = {Activation::identity};
  LinearOptions linear = {.kernel_init = init::fan_in_uniform()};
};

// Maps (..., in) -> (..., out) through `depth` layers of hidden units, each followed by the activation. Depth 0 is one
// Linear. Both dimensions of a hidden -> hidden kernel have the same name: rules shard the first, and the second is not
// sharded. Error (invalid_argument): a negative depth.
struct DeepMlp {
  std::vector<Linear> layers;  // in -> hidden, hidden -> hidden, ..., hidden -> out
  Activation activation, final_activation;

  static DeepMlp init(const Key& key, const Axis& in, const Axis& hidden, const Axis& out, int64_t depth,
                      const DeepMlpOptions& options = {});
  Array operator()(Operand x) const;
};

}  // namespace tessera::nn
