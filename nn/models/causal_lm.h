// CausalLM: a decoder of any supported family, as its config describes it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "nn/layers/linear.h"
#include "nn/models/config.h"
#include "nn/models/decoder_layer.h"
#include "sharding/operations/linalg/linear_algebra.h"
#include "sharding/placement/mesh.h"
#include "sharding/placement/mesh_rules.h"

namespace tessera::nn {

// Holds the keys and values of the text so far, by layer. Initially empty: DecoderCache cache; model.decode(ids,
// cache);
struct DecoderCache {
  std::vector<KeyValueCache> layers;

  int64_t length() const { return layers.empty() ? 0 : layers.front().length(); }
};

// Returns mesh rules for the logical axes of the decoders: batch, stream_seq (the sequence dimension between the
// blocks), vocab, positions, embed, heads, kv_heads, head_dim, mlp, experts and norm.
//
// The rules of `own` come first. They are followed by rules for the other names, for these axes of the mesh:
//   data    shards the batch
//   fsdp    shards the batch, and matrices along embed
//   model   shards matrices along vocab, heads, kv_heads, experts and mlp
// If an axis does not divide the vocabulary, the vocabulary is padded (Uneven::pad). Another dimension that an axis
// does not divide is replicated. So {"data": 8} is data parallel, {"fsdp": 8} fully sharded, {"model": 8} tensor
// parallel, and meshes with two or three of these axes combine them.
Rules decoder_rules(const Mesh& mesh, Rules own = {});

// A decoder: token ids in, logits of the next token out.
//   auto model = nn::filter_shard(nn::CausalLM::init(Key(0), {.vocab_size = 32000, .hidden_size = 512}), mesh_rules);
//   const Array logits = model(ids);
struct CausalLM {
  DecoderEmbedding embed;
  std::vector<DecoderLayer> layers;
  DecoderNorm final_norm;
  std::optional<Linear> head;  // absent if the head shares the embedding
  DecoderConfig config;
  bool remat = false;                      // true: the backward pass recomputes each block's activations
  std::vector<int32_t> eos_token_id = {};  // of the folder's generation_config.json: ends the texts of `generate`

  // Makes a decoder. Weights are normal with standard deviation 0.02. Those that write to the residual stream are
  // divided by sqrt(2 layers), as in Radford et al., "Language models are unsupervised multitask learners" (GPT-2,
  // 2019). Error (invalid_argument): a config that `check` rejects.
  static CausalLM init(const Key& key, const DecoderConfig& config);

  // Sets DecoderConfig::router_aux_loss_coef, for a model that is loaded from a folder. Errors: those of `check`.
  void set_router_aux_loss_coef(double coefficient);
  // Sets the algorithm of all attention layers for a sharded sequence (nn/layers/attention.h).
  void set_context_parallelism(ContextParallelism context_parallelism);
  // Maps token ids (batch, seq) to the input of the head, (batch, seq, embed). Error (invalid_argument): an id outside
  // [0, config.vocab_size); `loss` has the same error for a label.
  Array hidden(const Array& ids, const TokenInputs& with = {}) const;
  // Maps the result of `hidden` to logits (batch, seq, config.vocab_size).
  Array logits(const Array& hidden) const;
  Array operator()(const Array& ids, const TokenInputs& with = {}) const { return logits(hidden(ids, with)); }
  // Returns the cross-entropy of labels (batch, seq) for the ids, weighted by `weights` (batch, seq) if given. The
  // result is a sum and a weight, which you can add up or divide. The complete logits are never stored
  // (nn/layers/embedding.h).
  // With config.router_aux_loss_coef, the loss includes that multiple of transformers' load_balancing_loss_func:
  // num_local_experts * num_experts_per_tok * the sum over experts of (its fraction of all choices) times (its mean
  // probability). The fraction and the mean are over all layers with experts and all positions, regardless of the
  // positions' weights in the loss.
  WeightedSum loss(const Array& ids, const Array& labels, const Array& weights = {},
                   const TokenInputs& with = {}) const;
  // Maps the ids (batch, n) after those in the cache to their logits (batch, n, config.vocab_size), and appends the ids
  // to the cache. After an error the cache is unchanged.
  Array decode(const Array& ids, DecoderCache& cache, const DecodeInputs& with = {}) const;
};

// Returns the model with a LoRA adapter (nn/layers/linear.h) for every linear layer of its attention and its MLPs.
// Experts, the embedding and the head have none. Train the adapters with nn::by_path("**.lora.**"). merge_lora adds the
// adapters to the kernels and removes them, which save_pretrained requires. Errors: those of with_lora for a layer.
CausalLM with_lora(const Key& key, CausalLM model, const LoraOptions& options = {});
CausalLM merge_lora(CausalLM model);

}  // namespace tessera::nn
