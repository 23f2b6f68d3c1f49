// Pre-norm transformer blocks: EncoderBlock and DecoderBlock.
#pragma once

#include <optional>

#include "nn/layers/activation.h"
#include "nn/layers/attention.h"
#include "nn/layers/mlp.h"
#include "nn/layers/norm.h"

namespace tessera::nn {

struct BlockOptions {
  double dropout = 0;                                  // rate for each sublayer's output and for the attention weights
  double eps = 1e-5;                                   // eps of the norms
  std::optional<Axis> kv_features = std::nullopt;      // as in AttentionOptions
  std::optional<RotaryEmbedding> rope = std::nullopt;  // as in AttentionOptions
  std::optional<Axis> context = std::nullopt;          // dimension that a DecoderBlock's cross-attention reads
  Activation activation = {Activation::gelu};
  DTypePolicy dtypes = {};
};

// Both blocks map (batch, seq, embed) -> the same. Each sublayer reads the normalized x, and its output is added to x:
//   x = x + dropout(attention(norm1(x))),  x = x + dropout(mlp(norm2(x))).
// Xiong et al., "On layer normalization in the transformer architecture" (2020). Errors: those of the sublayers.

// Lets every position attend to all positions, as in BERT and ViT. Error (invalid_argument): a context.
//   x = block(x, {.mask = mask, .key = key})
struct EncoderBlock {
  LayerNorm norm1;
  MultiheadAttention attention;
  LayerNorm norm2;
  Mlp mlp;
  Dropout dropout = {.rate = 0};

  static EncoderBlock init(const Key& key, const Axis& embed, const Axis& heads, int64_t num_heads, const Axis& hidden,
                           const BlockOptions& options = {});
  Array operator()(Operand x, const AttentionInputs& with = {}) const;
};

// Cross-attention with its norm.
struct CrossAttention {
  LayerNorm norm;
  MultiheadAttention attention;
};

// Inputs of a DecoderBlock call in addition to x.
struct DecoderInputs {
  Array context = {};       // (batch, keys, context): required with cross-attention, an error without
  Array context_mask = {};  // booleans that broadcast to (batch, heads, seq, keys)
  Array mask = {};          // mask of the self-attention, in addition to the causal mask
  std::optional<Key> key = std::nullopt;
};

// Lets every position attend to itself and to earlier positions, as in GPT. With options.context, cross-attention
// follows the self-attention, as in translation.
struct DecoderBlock {
  LayerNorm norm1;
  MultiheadAttention attention;  // causal
  std::optional<CrossAttention> cross = std::nullopt;
  LayerNorm norm2;
  Mlp mlp;
  Dropout dropout = {.rate = 0};

  static DecoderBlock init(const Key& key, const Axis& embed, const Axis& heads, int64_t num_heads, const Axis& hidden,
                           const BlockOptions& options = {});
  // Returns the output for x. Error (invalid_argument): a context for a block without cross-attention, or no context
  // for a block with it.
  Array operator()(Operand x, const DecoderInputs& with = {}) const;
  // Returns the output for the positions after those in the cache, for inference: no dropout.
  Array decode(Operand x, KeyValueCache& cache, const Array& context = {}) const;
};

}  // namespace tessera::nn
