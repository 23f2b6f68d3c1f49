// Gpt: a decoder as plain structs, composed of layers; Llama and others are in nn/models.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include <tessera/data/batches.h>
#include <tessera/nn/layers/attention.h>
#include <tessera/nn/layers/embedding.h>
#include <tessera/nn/layers/linear.h>
#include <tessera/nn/layers/mlp.h>
#include <tessera/nn/layers/module_scope.h>
#include <tessera/nn/layers/norm.h>
#include <tessera/nn/models.h>
#include <tessera/nn/transformations.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/placement.h>
#include <tessera/sharding/random.h>

namespace tessera::examples {

// Sets the sharding of the residual stream (batch, seq, embed) after the embedding and each half of a block.
using Constrain = std::function<Array(const Array&)>;

// Uses the mesh rules that the model was placed with; the sequence dim of the stream is named stream_seq.
inline Array constrain_by_names(const Array& x) { return with_sharding_constraint(x, {"batch", "stream_seq", none}); }

// Kernels that write to the residual stream (`output`) start with deviation 0.02 / sqrt(number of these kernels), as in
// GPT-2 (Radford et al., 2019).
struct StartingWeights {
  nn::Initializer inner, output;

  explicit StartingWeights(int64_t layers)
      : inner(nn::init::normal(0.02)), output(nn::init::normal(0.02 / std::sqrt(2.0 * layers))) {}
};

struct GptConfig {
  int64_t vocab = 256, embed = 64, heads = 4, layers = 2, seq = 32, mlp = 256;
  double eps = 1e-5;
};

struct GptEmbedding {
  nn::Param tokens;     // (vocab, embed)
  nn::Param positions;  // (seq, embed)

  static GptEmbedding init(const Key& key, const Axis& vocab, const Axis& seq, const Axis& embed) {
    const auto [k1, k2] = split<2>(key);
    return {.tokens = {0.02 * normal(k1, {vocab.size, embed.size}), {vocab, embed}},
            .positions = {0.02 * normal(k2, {seq.size, embed.size}), {seq, embed}}};
  }

  // Embeds ids (batch, n).
  Array operator()(const Array& ids) const {
    const nn::ModuleScope scope(*this);
    return embedding(tokens, ids) + slice_in_dim(positions, 0, ids.shape(1), 0);
  }
};

struct GptBlock {
  nn::LayerNorm ln1;
  nn::MultiheadAttention attn;
  nn::LayerNorm ln2;
  nn::Mlp mlp;

  static GptBlock init(const Key& key, const GptConfig& c, const Axis& embed) {
    const auto [k1, k2] = split<2>(key);
    const StartingWeights start(c.layers);
    return {.ln1 = nn::LayerNorm::init({"norm", c.embed}, c.eps),
            .attn = nn::MultiheadAttention::init(k1, embed, {"heads", c.embed}, c.heads,
                                                 {.init = start.inner, .output_init = start.output}),
            .ln2 = nn::LayerNorm::init({"norm", c.embed}, c.eps),
            .mlp = nn::Mlp::init(k2, embed, {"mlp", c.mlp}, {.up_init = start.inner, .down_init = start.output})};
  }

  Array operator()(Array x, const Constrain& constrain) const {
    const nn::ModuleScope scope(*this);
    x = constrain(x + attn(ln1(x)));
    return constrain(x + mlp(ln2(x)));
  }
};

struct Gpt {
  GptEmbedding embed;
  std::vector<GptBlock> layers;
  nn::LayerNorm final_ln;
  nn::Linear head;
  bool remat = false;  // recomputes each block's activations in the backward pass

  static Gpt init(const Key& key, const GptConfig& c) {
    const Axis vocab{"vocab", c.vocab}, embed{"embed", c.embed};
    const auto keys = split(key, c.layers + 2);
    Gpt gpt{.embed = GptEmbedding::init(keys[0], vocab, {"seq", c.seq}, embed),
            .layers = {},
            .final_ln = nn::LayerNorm::init({"norm", c.embed}, c.eps),
            .head = nn::Linear::init(keys[1], embed, vocab, {.bias = false, .kernel_init = nn::init::normal(0.02)})};
    for (int64_t i = 0; i < c.layers; ++i) gpt.layers.push_back(GptBlock::init(keys[i + 2], c, embed));
    return gpt;
  }

  // Token ids (batch, seq) -> logits (batch, seq, vocab).
  Array operator()(const Array& ids, const Constrain& constrain = constrain_by_names) const {
    Array x = constrain(embed(ids));
    for (const GptBlock& block : layers) x = remat ? nn::remat(block)(x, constrain) : block(x, constrain);
    return head(final_ln(x));
  }
};

// ---- for any decoder

// Computes the mean cross-entropy of the next token, in nats.
template <class Model, class Batch>
Array next_token_loss(const Model& model, const Batch& batch) {
  return cross_entropy(model(batch.inputs), batch.targets);
}

// Computes the same in mixed precision: logits in `dtype` from unchanged parameters, their loss in float32.
template <class Model, class Batch>
auto next_token_loss_in(DType dtype) {
  return [dtype](const Model& model, const Batch& batch) {
    return cross_entropy(astype(nn::cast(model, dtype)(batch.inputs), float32), batch.targets);
  };
}

// Returns a batch of zeros, which take no memory, for code that needs only the shape.
inline data::TokenBatch empty_rows(int64_t rows, int64_t seq) {
  data::TokenBatch batch;
  for (NamedArray* ids : {&batch.inputs, &batch.targets}) *ids = zeros({rows, seq}, int32);
  return batch;
}

// Returns the sizes of the largest Llama 2 and 3, for forecasts and placement tables.
inline nn::DecoderConfig llama_70b() {
  return {.vocab_size = 128256,
          .hidden_size = 8192,
          .num_hidden_layers = 80,
          .num_attention_heads = 64,
          .num_key_value_heads = 8,
          .head_dim = 128,
          .intermediate_size = 28672,
          .tie_word_embeddings = true};
}

// Adds a rule `replicated` for every logical axis of Gpt and of nn/models.h that `rules` does not name.
inline Rules with_all_names(Rules rules) {
  for (const char* name : {"batch", "stream_seq", "vocab", "embed", "seq", "positions", "norm", "heads", "kv_heads",
                           "head_dim", "mlp", "experts"})
    if (std::none_of(rules.begin(), rules.end(), [&](const Rule& r) { return r.logical == name; }))
      rules.push_back({name, replicated});
  return rules;
}

}  // namespace tessera::examples
