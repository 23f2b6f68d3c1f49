// MoeMlp: many perceptrons of which each token takes a few, spread over the devices.
#pragma once

#include <optional>

#include "nn/layers/activation.h"
#include "nn/layers/linear.h"

namespace tessera::nn {

struct MoeOptions {
  int64_t top_k = 2;              // experts for each token
  double capacity_factor = 1.25;  // room of an expert, over an equal share
  bool gated = false;             // SwiGLU experts
  Activation activation = {Activation::gelu};
  Initializer router_init = init::lecun_normal();
  Initializer up_init = init::lecun_normal(1);  // of all experts' kernels, (experts, in, out); of gate, too
  Initializer down_init = init::lecun_normal(1);
  DTypePolicy dtypes = {};
};

struct MoeResult {
  Array out;
  Array balance_loss;  // a scalar, 1 if all experts are used alike: add a small multiple of it to the loss
  Array dropped;       // a scalar: the part of the tokens' choices for which an expert had no room
};

// (batch, seq, embed) -> (batch, seq, embed). A token's k most probable experts, softmax(x router), each add their
// answer times their probability (for k > 1 divided by the sum of the k). Of each row of the batch an expert takes at
// most capacity = ceil(top_k seq / experts * capacity_factor) tokens, first choices first, earlier positions first; a
// choice beyond it adds nothing. balance_loss = experts * sum over experts of (its part of all choices) times (its mean
// probability), which is Switch's. Probabilities and the loss are in float32 or wider.
// Experts on a mesh axis: the axes over which `up` lies apart along experts carry the tokens there and back, an
// all_to_all each way where the batch lies over the same axes; then no device holds or computes other than its own
// experts'. Shazeer et al., "Outrageously large neural networks" (2017); Lepikhin et al., "GShard" (2020); Fedus, Zoph
// and Shazeer, "Switch transformers" (2021).
struct MoeMlp {
  Param router;               // (embed, experts); rules leave it whole, or cut it along embed
  Param up;                   // (experts, embed, hidden)
  std::optional<Param> gate;  // the same; with it experts are down(silu(gate x) * up x), as GatedMlp
  Param down;                 // (experts, hidden, embed)
  int64_t top_k = 2;
  double capacity_factor = 1.25;
  Activation activation = {Activation::gelu};
  DTypePolicy dtypes = {};

  // Errors (bad_argument): a top_k below 1 or above the number of experts, a capacity_factor that is not above 0.
  static MoeMlp init(const Key& key, const Axis& embed, const Axis& hidden, const Axis& experts,
                     const MoeOptions& options = {});
  // Errors (shape_mismatch): other than three dims, another embed.
  MoeResult operator()(Operand x) const;
  // Tokens that an expert takes of a row of so many.
  int64_t capacity(int64_t seq) const;
};

}  // namespace tessera::nn
