// MoeMlp: a mixture of experts, sharded over devices, of which each token uses a few.
#pragma once

#include <optional>
#include <variant>

#include "nn/layers/activation.h"
#include "nn/layers/linear.h"
#include "nn/layers/mlp.h"

namespace tessera::nn {

// Scores that the router computes from its logits: a distribution over all experts, or a number from 0 to 1 per expert.
enum class RouterScore { softmax, sigmoid };

// The gate of gpt-oss (OpenAI, 2025): (clip(up, -limit, limit) + 1) * g * sigmoid(alpha g), with g = min(gate, limit).
struct ClampedGate {
  double limit = 7, alpha = 1.702;
};

struct MoeOptions {
  int64_t top_k = 2;  // experts for each token
  // Capacity of an expert, relative to an equal share of the tokens. nullopt: an expert takes all tokens that chose it.
  std::optional<double> capacity_factor = 1.25;
  bool gated = false;  // SwiGLU experts
  RouterScore score = RouterScore::softmax;
  std::optional<bool> normalize = {};  // whether the k scores are divided by their sum; default: if k > 1
  double scale = 1;                    // factor of the weights of the experts' outputs
  bool balance_bias = false;  // whether a bias, updated by rebalance(), is added to the scores when experts are chosen
  bool router_bias = false;   // whether a trained bias is added to the router's logits
  bool expert_bias = false;   // whether up, gate and down have biases; for gated experts
  std::optional<ClampedGate> clamped_gate = {};  // replaces SwiGLU of gated experts
  // A token chooses among the experts of `top_k_groups` of `num_groups` groups: those with the largest sums of their
  // two best scores.
  int64_t num_groups = 1, top_k_groups = 1;
  bool scale_inputs = false;       // whether the weights multiply the experts' inputs, as in Llama 4, not their outputs
  int64_t num_shared_experts = 0;  // experts for every token: one MLP without bias, num_shared_experts * hidden wide
  Activation activation = {Activation::gelu};
  Initializer router_init = init::lecun_normal();
  Initializer up_init = init::lecun_normal(1);  // initializes the stacked kernels (experts, in, out) of up and gate
  Initializer down_init = init::lecun_normal(1);
  DTypePolicy dtypes = {};
};

struct MoeResult {
  Array out;
  Array balance_loss;  // scalar, 1 if all experts are used equally; add a small multiple of it to the loss
  Array dropped;       // scalar: fraction of the tokens' choices whose expert was full
  // Values of each expert (experts): its fraction of all choices, without gradient, and its mean probability.
  // balance_loss is the sum of their products times the number of experts.
  Array choices, probabilities;
};

// Sends each token to its k best experts and adds their outputs: (batch, seq, embed) -> (batch, seq, embed).
// Scores are the softmax or sigmoid of matmul(x, router). With a bias, experts are chosen by score + bias. The outputs
// are weighted by their scores without bias (if `normalize`, divided by the sum of the k scores; times `scale`). The
// output of the shared experts is added.
// In each row of the batch, an expert takes at most `capacity` tokens: ceil(top_k seq / experts * capacity_factor),
// clamped to [1, seq]. First choices have priority, then earlier positions. A choice beyond the capacity adds nothing.
// Without a capacity, an expert takes all its tokens. Tokens are then sorted by expert, and one matrix product per
// expert reads its rows (ragged_dot), so no array has a capacity dimension. Gale et al., "MegaBlocks" (2022).
// balance_loss = experts * sum over experts of (its fraction of all choices) times (its mean probability), as in
// Switch. For this loss, each token's sigmoid scores are divided by their sum. Scores and the loss are in float32 or
// wider.
// Experts can be sharded: tokens are sent to their experts and back over the mesh axes that divide the experts
// dimension of `up`. If the batch is sharded over the same mesh axes, this takes one all_to_all each way. Without a
// capacity, tokens are gathered, and the outputs of gated experts are reduce-scattered. Each device holds and computes
// only its own experts.
// Shazeer et al., "Outrageously large neural networks" (2017); Lepikhin et al., "GShard" (2020); Fedus, Zoph and
// Shazeer, "Switch transformers" (2021). Sigmoid, bias and shared experts: DeepSeek-AI, "DeepSeek-V3 technical report"
// (2024), 2.1.2, which also has the groups.
struct MoeMlp {
  Param router;               // (embed, experts); rules can shard it along embed only
  Param up;                   // (experts, embed, hidden)
  std::optional<Param> gate;  // like up; with it, experts compute down(silu(gate x) * up x), as GatedMlp
  Param down;                 // (experts, hidden, embed)
  std::optional<std::variant<Mlp, GatedMlp>> shared;
  std::optional<Buffer> bias;                                             // (experts): of balance_bias
  std::optional<Param> router_bias = std::nullopt;                        // (experts)
  std::optional<Param> up_bias = std::nullopt, gate_bias = std::nullopt;  // (experts, hidden)
  std::optional<Param> down_bias = std::nullopt;                          // (experts, embed)
  std::optional<ClampedGate> clamped_gate = std::nullopt;
  int64_t num_groups = 1, top_k_groups = 1;
  bool scale_inputs = false;
  int64_t top_k = 2;
  std::optional<double> capacity_factor = 1.25;
  RouterScore score = RouterScore::softmax;
  bool normalize = true;
  double scale = 1;
  Activation activation = {Activation::gelu};
  DTypePolicy dtypes = {};

  // Makes the router and the experts.
  // Errors (invalid_argument)
  //   a top_k below 1 or above the number of experts in top_k_groups groups
  //   a number of groups that does not divide the experts, or a top_k_groups above it
  //   expert_bias or clamped_gate for experts that are not gated
  //   a capacity_factor that is not above 0, or a negative number of shared experts
  static MoeMlp init(const Key& key, const Axis& embed, const Axis& hidden, const Axis& experts,
                     const MoeOptions& options = {});
  // Returns the output for x and the routing statistics. Error (shape_mismatch): x does not have three dimensions, or
  // has the wrong embed.
  MoeResult operator()(Operand x) const;
  // Changes the bias of each expert by `speed`: up if its fraction in `choices` (from a MoeResult) is below 1 /
  // experts, down if it is above. Call it after a step with the choices that the loss returned as aux:
  //   optimizer.update(model, grads), model.moe.rebalance(aux);
  // Wang et al., "Auxiliary-loss-free load balancing strategy for mixture-of-experts" (2024).
  // Errors
  //   invalid_argument: a layer without bias
  //   shape_mismatch: choices for a different number of experts
  void rebalance(const Array& choices, double speed = 1e-3);
  // Returns the maximum number of tokens that an expert takes from one row of `seq` tokens.
  int64_t capacity(int64_t seq) const;
};

}  // namespace tessera::nn
