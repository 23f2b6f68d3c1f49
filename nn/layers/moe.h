// MoeMlp: a mixture of experts, MLPs of which each token uses a few, sharded over devices.
#pragma once

#include <optional>
#include <variant>

#include "nn/layers/activation.h"
#include "nn/layers/linear.h"
#include "nn/layers/mlp.h"

namespace tessera::nn {

// What the router makes of its logits: a distribution over all experts, or a number from 0 to 1 for each by itself.
enum class RouterScore { softmax, sigmoid };

struct MoeOptions {
  int64_t top_k = 2;  // experts for each token
  // Capacity of an expert / its equal share of the tokens; nullopt: an expert takes all that chose it.
  std::optional<double> capacity_factor = 1.25;
  bool gated = false;  // SwiGLU experts
  RouterScore score = RouterScore::softmax;
  std::optional<bool> normalize = {};  // whether the k scores are divided by their sum; for k > 1 unless given
  double scale = 1;                    // of the weights of the answers
  bool balance_bias = false;           // whether a bias that rebalance() moves is added where experts are chosen
  int64_t num_shared_experts = 0;      // experts that answer every token: one MLP of so many times hidden, without bias
  Activation activation = {Activation::gelu};
  Initializer router_init = init::lecun_normal();
  Initializer up_init = init::lecun_normal(1);  // of the stacked kernels (experts, in, out), gate's too
  Initializer down_init = init::lecun_normal(1);
  DTypePolicy dtypes = {};
};

struct MoeResult {
  Array out;
  Array balance_loss;  // a scalar, 1 if all experts are used equally: add a small multiple of it to the loss
  Array dropped;       // a scalar: the fraction of the tokens' choices whose expert was full
  // Of each expert (experts): its fraction of all choices, without gradient, and its mean probability. balance_loss is
  // the sum of their products times the number of experts.
  Array choices, probabilities;
};

// (batch, seq, embed) -> (batch, seq, embed). Each token goes to the k experts that score highest for it, by softmax or
// sigmoid(x router), with a bias by score + bias; their outputs are weighted by their scores (without bias; if
// `normalize`, divided by the sum of the k; times `scale`) and added, with the answer of the shared experts. In each
// row of the batch an expert takes at most capacity = ceil(top_k seq / experts * capacity_factor) tokens (from 1 to
// seq), first choices first, earlier positions first; a choice beyond the capacity adds nothing. Without a capacity an
// expert takes all: tokens are sorted by expert, and one product for each expert reads its rows (ragged_dot), so that
// nothing has a dim of places (Gale et al., "MegaBlocks", 2022). balance_loss = experts
// * sum over experts of (its fraction of all choices) times (its mean probability), as in Switch; a sigmoid's scores
// are divided by their sum for it. Scores and the loss are in float32 or wider. Experts can be sharded: over the mesh
// axes that divide the experts dim of `up`, tokens are sent to their experts and back, by one all_to_all each way if
// the batch is sharded over the same mesh axes (without a capacity they are gathered, and the answers
// of gated experts reduce-scattered); then each device holds and computes only its own experts. Shazeer et al.,
// "Outrageously large neural networks" (2017); Lepikhin et al., "GShard" (2020); Fedus, Zoph and Shazeer, "Switch
// transformers" (2021); of sigmoid, bias and shared experts DeepSeek-AI, "DeepSeek-V3 technical report" (2024), 2.1.2.
struct MoeMlp {
  Param router;               // (embed, experts); rules can shard it along embed only
  Param up;                   // (experts, embed, hidden)
  std::optional<Param> gate;  // as up; with it experts are down(silu(gate x) * up x), as GatedMlp
  Param down;                 // (experts, hidden, embed)
  std::optional<std::variant<Mlp, GatedMlp>> shared;
  std::optional<Buffer> bias;  // (experts)
  int64_t top_k = 2;
  std::optional<double> capacity_factor = 1.25;
  RouterScore score = RouterScore::softmax;
  bool normalize = true;
  double scale = 1;
  Activation activation = {Activation::gelu};
  DTypePolicy dtypes = {};

  // Errors (invalid_argument): a top_k below 1 or above the number of experts, a capacity_factor that is not above 0, a
  // negative number of shared experts.
  static MoeMlp init(const Key& key, const Axis& embed, const Axis& hidden, const Axis& experts,
                     const MoeOptions& options = {});
  // Errors (shape_mismatch): x has other than three dims, or another embed.
  MoeResult operator()(Operand x) const;
  // Moves the bias of each expert by `speed`: up if its fraction of the `choices`, those of a MoeResult, is below 1 /
  // experts, down if it is above. Called after a step with the choices that the loss gave as aux:
  //   optimizer.update(model, grads), model.moe.rebalance(aux);
  // Wang et al., "Auxiliary-loss-free load balancing strategy for mixture-of-experts" (2024). Errors: no bias
  // (invalid_argument), choices of another number of experts (shape_mismatch).
  void rebalance(const Array& choices, double speed = 1e-3);
  // The most tokens that an expert takes from one row of `seq` tokens.
  int64_t capacity(int64_t seq) const;
};

}  // namespace tessera::nn
