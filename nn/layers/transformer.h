// The blocks of transformers, pre-norm: EncoderBlock, DecoderBlock.
#pragma once

#include <optional>

#include "nn/layers/attention.h"
#include "nn/layers/dropout.h"
#include "nn/layers/mlp.h"
#include "nn/layers/norm.h"

namespace tessera::nn {

struct BlockOptions {
  double dropout = 0;                              // of what each part adds, and of the attention weights
  double eps = 1e-5;                               // of the norms
  std::optional<Axis> kv_heads = std::nullopt;     // as AttentionOptions
  std::optional<double> rope_base = std::nullopt;  // as AttentionOptions
  std::optional<Axis> context = std::nullopt;      // of a DecoderBlock: what its cross-attention reads
  Activation activation = {Activation::gelu};
  DTypePolicy dtypes = {};
};

// (batch, seq, embed) -> the same. Each part reads what is normalized and adds to what is not:
//   x = x + dropout(attention(norm1(x))),  x = x + dropout(mlp(norm2(x))).
// Xiong et al., "On layer normalization in the transformer architecture" (2020). Errors are those of its parts.

// Every position sees every other: BERT's, ViT's.
//   x = block(x, {.mask = mask, .key = key})      a context is none of its inputs (bad_argument)
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

// What a call of a DecoderBlock may take beside x.
struct DecoderInputs {
  Array context = {};       // (batch, keys, context): given where and only where the block has a cross-attention
  Array context_mask = {};  // booleans that broadcast to (batch, heads, seq, keys)
  Array mask = {};          // of the self-attention, beside its causality
  std::optional<Key> key = std::nullopt;
};

// A position sees those before it: GPT's; with options.context it reads a context in between, as in translation.
struct DecoderBlock {
  LayerNorm norm1;
  MultiheadAttention attention;  // causal
  std::optional<CrossAttention> cross = std::nullopt;
  LayerNorm norm2;
  Mlp mlp;
  Dropout dropout = {.rate = 0};

  static DecoderBlock init(const Key& key, const Axis& embed, const Axis& heads, int64_t num_heads, const Axis& hidden,
                           const BlockOptions& options = {});
  // Error (bad_argument): a context without a cross-attention, or none where there is one.
  Array operator()(Operand x, const DecoderInputs& with = {}) const;
  // Of the positions that follow those in the cache, for inference: no dropout.
  Array decode(Operand x, KeyValueCache& cache, const Array& context = {}) const;
};

}  // namespace tessera::nn
