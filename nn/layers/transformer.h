// The blocks of transformers, pre-norm: EncoderBlock, DecoderBlock.
#pragma once

#include <optional>

#include "nn/layers/attention.h"
#include "nn/layers/dropout.h"
#include "nn/layers/mlp.h"
#include "nn/layers/norm.h"

namespace tessera::nn {

struct BlockOptions {
  double dropout = 0;                                  // of the output of each sublayer, and of the attention weights
  double eps = 1e-5;                                   // of the norms
  std::optional<Axis> kv_features = std::nullopt;      // as AttentionOptions
  std::optional<RotaryEmbedding> rope = std::nullopt;  // as AttentionOptions
  std::optional<Axis> context = std::nullopt;          // of a DecoderBlock: what its cross-attention reads
  Activation activation = {Activation::gelu};
  DTypePolicy dtypes = {};
};

// (batch, seq, embed) -> the same. Each sublayer reads the normalized x, and its output is added to x itself:
//   x = x + dropout(attention(norm1(x))),  x = x + dropout(mlp(norm2(x))).
// Xiong et al., "On layer normalization in the transformer architecture" (2020). Errors: those of the sublayers.

// Every position attends to every other, as in BERT and ViT. Error (invalid_argument): a context.
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

// Inputs of a DecoderBlock call beside x.
struct DecoderInputs {
  Array context = {};       // (batch, keys, context): required with cross-attention, refused without
  Array context_mask = {};  // booleans that broadcast to (batch, heads, seq, keys)
  Array mask = {};          // of the self-attention, in addition to the causal mask
  std::optional<Key> key = std::nullopt;
};

// Every position attends to itself and to those before it, as in GPT. With options.context, cross-attention follows the
// self-attention, as in translation.
struct DecoderBlock {
  LayerNorm norm1;
  MultiheadAttention attention;  // causal
  std::optional<CrossAttention> cross = std::nullopt;
  LayerNorm norm2;
  Mlp mlp;
  Dropout dropout = {.rate = 0};

  static DecoderBlock init(const Key& key, const Axis& embed, const Axis& heads, int64_t num_heads, const Axis& hidden,
                           const BlockOptions& options = {});
  // Error (invalid_argument): a context for a block without cross-attention, no context for a block with it.
  Array operator()(Operand x, const DecoderInputs& with = {}) const;
  // The output for the positions that follow those in the cache, for inference: no dropout.
  Array decode(Operand x, KeyValueCache& cache, const Array& context = {}) const;
};

}  // namespace tessera::nn
