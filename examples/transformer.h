// A GPT-2 style decoder as plain structs: learned positions, LayerNorm, causal attention, GELU, a head of its own.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "nn/layers/attention.h"
#include "nn/layers/linear.h"
#include "nn/layers/mlp.h"
#include "nn/layers/norm.h"
#include "sharding/device_put.h"
#include "sharding/random.h"

namespace tessera::examples {

struct GptConfig {
  int64_t vocab = 256, embed = 64, heads = 4, layers = 2, seq = 32, mlp = 256;
  double eps = 1e-5;
};

// Pins where the residual stream (batch, seq, embed) lies: after the embedding and after each half of a block.
using Constrain = std::function<Array(const Array&)>;

// By the rules of the layout that the model was placed with; the stream's sequence has a name of its own.
inline Array constrain_by_names(const Array& x) { return with_sharding_constraint(x, {"batch", "stream_seq", none}); }

struct GptEmbedding {
  nn::Param tokens;     // (vocab, embed)
  nn::Param positions;  // (seq, embed)

  static GptEmbedding init(const Key& key, const Axis& vocab, const Axis& seq, const Axis& embed) {
    const auto [k1, k2] = split<2>(key);
    return {.tokens = {0.02 * normal(k1, {vocab.size, embed.size}), {vocab, embed}},
            .positions = {0.02 * normal(k2, {seq.size, embed.size}), {seq, embed}}};
  }

  Array operator()(const Array& ids) const {
    return embedding(tokens, ids) + slice_in_dim(positions, 0, ids.shape(1), 0);
  }
};

struct GptBlock {
  nn::LayerNorm ln1;
  nn::MultiheadAttention attn;
  nn::LayerNorm ln2;
  nn::Mlp mlp;

  // What writes the residual stream starts smaller, by the number of its writers (Radford et al., GPT-2, 2019).
  static GptBlock init(const Key& key, const GptConfig& c, const Axis& embed) {
    const auto [k1, k2] = split<2>(key);
    const auto in = nn::init::normal(0.02), out = nn::init::normal(0.02 / std::sqrt(2.0 * c.layers));
    return {
        .ln1 = nn::LayerNorm::init({"norm", c.embed}, c.eps),
        .attn = nn::MultiheadAttention::init(k1, embed, {"heads", c.embed}, c.heads, {.init = in, .output_init = out}),
        .ln2 = nn::LayerNorm::init({"norm", c.embed}, c.eps),
        .mlp = nn::Mlp::init(k2, embed, {"mlp", c.mlp}, {.up_init = in, .down_init = out})};
  }

  Array operator()(Array x, const Constrain& constrain) const {
    x = constrain(x + attn(ln1(x)));
    return constrain(x + mlp(ln2(x)));
  }
};

struct Gpt {
  GptEmbedding embed;
  std::vector<GptBlock> layers;
  nn::LayerNorm final_ln;
  nn::Linear head;

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
    for (const GptBlock& block : layers) x = block(x, constrain);
    return head(final_ln(x));
  }
};

// Mean cross-entropy of the next token, in nats.
template <class Model, class Batch>
Array next_token_loss(const Model& model, const Batch& batch) {
  return cross_entropy(model(batch.inputs), batch.targets);
}

// Rules that name every logical axis of the models here, for tables that list only what is sharded.
inline Rules with_all_names(Rules rules) {
  for (const char* name : {"batch", "stream_seq", "vocab", "embed", "seq", "norm", "heads", "kv_heads", "mlp"})
    if (std::none_of(rules.begin(), rules.end(), [&](const Rule& r) { return r.logical == name; }))
      rules.push_back({name, replicated});
  return rules;
}

}  // namespace tessera::examples
