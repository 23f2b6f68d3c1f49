// Definitions of Decoder's functions, for the files that compile one family each, and helpers to build blocks.
#pragma once

#include "nn/layers/embedding.h"
#include "nn/layers/mlp.h"
#include "nn/layers/module_scope.h"
#include "nn/models/gpt2.h"
#include "nn/transformations/remat.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/neural/linear_cross_entropy.h"

namespace tessera::nn::detail {

// Initializers of a decoder's weights. Kernels that write to the residual stream (`output`) start with smaller values;
// the factor depends on the number of these kernels.
struct StartingWeights {
  Initializer inner, output;

  explicit StartingWeights(const DecoderConfig& config);
};

RMSNorm rms_norm_of(const DecoderConfig& config);
LayerNorm layer_norm_of(const DecoderConfig& config);
MultiheadAttention attention_of(const Key& key, const DecoderConfig& config, int64_t layer);
MlpOptions mlp_options_of(const DecoderConfig& config);
Axis embed_axis(const DecoderConfig& config);
Axis mlp_axis(const DecoderConfig& config);

inline AttentionInputs attention_inputs(const TokenInputs& with) {
  return {.segment_ids = with.segment_ids, .positions = with.positions, .segment_starts = with.segment_starts};
}

// Throws Error (invalid_argument) for a cache of a model with a different number of layers.
void check_cache(const DecoderCache& cache, size_t layers);

// Constrains the residual stream (batch, seq, embed) to the mesh axes of its logical axes.
Array constrained(const Array& x);
// Returns cap tanh(logits / cap), or the logits if cap is 0, without the columns of padding.
Array finished_logits(const Array& logits, const DecoderConfig& config);

// Functions that each family defines, in addition to its block.
void init_embed(Embedding& embed, const Key& key, const DecoderConfig& config);
void init_embed(Gpt2Embedding& embed, const Key& key, const DecoderConfig& config);
void init_norm(RMSNorm& norm, const DecoderConfig& config);
void init_norm(LayerNorm& norm, const DecoderConfig& config);
// Embeds ids; the first has position `start`, or each has its own in with.positions.
Array embedded(const Embedding& embed, const DecoderConfig& config, const Array& ids, int64_t start,
               const TokenInputs& with);
Array embedded(const Gpt2Embedding& embed, const DecoderConfig& config, const Array& ids, int64_t start,
               const TokenInputs& with);
Array attended(const Param& tokens, const Array& x);

// Returns the loss of a decoder from the input of its head.
template <class Model>
WeightedSum head_loss(const Model& model, const Array& x, const Array& labels, const Array& weights) {
  const double cap = model.config.final_logit_softcapping;
  const LinearCrossEntropyOptions options{.weights = weights,
                                          .transposed = !model.head,
                                          .vocab = model.config.vocab_size,
                                          .logit_softcap = cap == 0 ? std::nullopt : std::optional(cap)};
  if (model.head) return head_cross_entropy_sum(*model.head, x, labels, options);
  return tessera::linear_cross_entropy_sum(x, model.embed.tokens, labels, options);
}

}  // namespace tessera::nn::detail

namespace tessera::nn {

// See nn/models/decoder.h.
template <class Embed, class Block, class Norm>
Decoder<Embed, Block, Norm> Decoder<Embed, Block, Norm>::init(const Key& key, const DecoderConfig& c) {
  check(c);
  const auto keys = split(key, c.num_hidden_layers + 2);
  Decoder decoder{.config = c};
  detail::init_embed(decoder.embed, keys[0], c);
  for (int64_t i = 0; i < c.num_hidden_layers; ++i)
    decoder.layers.push_back(Block::init(keys[static_cast<size_t>(i) + 2], c, i));
  detail::init_norm(decoder.final_norm, c);
  if (!c.tie_word_embeddings)
    decoder.head = Linear::init(keys[1], detail::embed_axis(c), {"vocab", c.padded_vocab_size()},
                                {.bias = false, .kernel_init = init::normal(0.02), .dtypes = c.dtypes});
  return decoder;
}

// See nn/models/decoder.h.
template <class Embed, class Block, class Norm>
Array Decoder<Embed, Block, Norm>::hidden(const Array& ids, const TokenInputs& with) const {
  Array x = detail::constrained(detail::embedded(embed, config, ids, 0, with));
  for (const Block& block : layers) x = detail::constrained(remat ? nn::remat(block)(x, with) : block(x, with));
  return final_norm(x);
}

// See nn/models/decoder.h.
template <class Embed, class Block, class Norm>
Array Decoder<Embed, Block, Norm>::logits(const Array& hidden) const {
  return detail::finished_logits(head ? (*head)(hidden) : detail::attended(embed.tokens, hidden), config);
}

// See nn/models/decoder.h.
template <class Embed, class Block, class Norm>
WeightedSum Decoder<Embed, Block, Norm>::loss(const Array& ids, const Array& labels, const Array& weights,
                                              const TokenInputs& with) const {
  return detail::head_loss(*this, hidden(ids, with), labels, weights);
}

// See nn/models/decoder.h.
template <class Embed, class Block, class Norm>
Array Decoder<Embed, Block, Norm>::decode(const Array& ids, DecoderCache& cache, const DecodeInputs& with) const {
  detail::check_cache(cache, layers.size());
  Array x = detail::embedded(embed, config, ids, cache.length(), {.positions = with.positions});
  DecoderCache longer = cache;
  longer.layers.resize(layers.size());
  for (size_t i = 0; i < layers.size(); ++i) x = layers[i].decode(x, longer.layers[i], with);
  const Array result = logits(final_norm(x));
  cache = longer;
  return result;
}

}  // namespace tessera::nn
