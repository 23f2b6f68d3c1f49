// Implements the parts that all decoders share.
#include "nn/models/decoder.h"

#include <algorithm>
#include <cmath>

#include "nn/models/decoder_stack.h"
#include "sharding/base/fail.h"
#include "sharding/operations/index/slicing.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/operations/shape/shapes.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::nn {

Rules decoder_rules(const Mesh& mesh, Rules own) {
  const auto is_named = [&, given = own](const char* name) {
    return std::any_of(given.begin(), given.end(), [&](const Rule& rule) { return rule.logical == name; });
  };
  const auto cut = [&](const char* name, std::vector<std::string> axes, Uneven uneven = Uneven::error) {
    if (is_named(name)) return;
    std::erase_if(axes, [&](const std::string& axis) { return !mesh.has_axis(axis); });
    if (!axes.empty()) own.push_back({name, axes, uneven});
    own.push_back({name, replicated});
  };
  cut("batch", {"data", "fsdp"});
  cut("vocab", {"model"}, Uneven::pad);
  for (const char* name : {"heads", "kv_heads", "experts", "mlp"}) cut(name, {"model"});
  cut("embed", {"fsdp"});
  for (const char* name : {"seq", "stream_seq", "positions", "head_dim", "norm"}) cut(name, {});
  return own;
}

}  // namespace tessera::nn

namespace tessera::nn::detail {

StartingWeights::StartingWeights(const DecoderConfig& c)
    : inner(init::normal(0.02)),
      output(init::normal(0.02 / std::sqrt(2.0 * static_cast<double>(c.num_hidden_layers)))) {}

Axis embed_axis(const DecoderConfig& c) { return {"embed", c.hidden_size}; }
Axis mlp_axis(const DecoderConfig& c) { return {"mlp", c.intermediate_size}; }

RMSNorm rms_norm_of(const DecoderConfig& c) {
  RMSNorm norm = RMSNorm::init({"norm", c.hidden_size}, c.rms_norm_eps, c.dtypes);
  if (c.family != DecoderFamily::gemma2) return norm;
  norm.scale.value = zeros({c.hidden_size}, {.dtype = c.dtypes.params});
  norm.offset = 1;
  return norm;
}

LayerNorm layer_norm_of(const DecoderConfig& c) {
  return LayerNorm::init({"norm", c.hidden_size}, c.rms_norm_eps, c.dtypes);
}

void init_norm(RMSNorm& norm, const DecoderConfig& c) { norm = rms_norm_of(c); }
void init_norm(LayerNorm& norm, const DecoderConfig& c) { norm = layer_norm_of(c); }

MultiheadAttention attention_of(const Key& key, const DecoderConfig& c, int64_t layer) {
  const StartingWeights start(c);
  const bool rotates = c.family != DecoderFamily::gpt2, normalizes = c.family == DecoderFamily::qwen3;
  std::optional<double> scale = c.attention_scale;
  if (c.scale_attn_by_inverse_layer_idx)
    scale = scale.value_or(1 / std::sqrt(static_cast<double>(c.head_dim))) / static_cast<double>(layer + 1);
  return MultiheadAttention::init(key, embed_axis(c), {"heads", c.num_attention_heads * c.head_dim},
                                  c.num_attention_heads,
                                  {.bias = c.attention_bias,
                                   .output_bias = c.output_bias,
                                   .kv_features = Axis{"kv_heads", c.num_key_value_heads * c.head_dim},
                                   .rope = rotates ? std::optional(c.rope) : std::nullopt,
                                   .qk_norm = normalizes ? std::optional(c.rms_norm_eps) : std::nullopt,
                                   .window = c.sliding_window(layer),
                                   .scale = scale,
                                   .softcap = c.attn_logit_softcapping,
                                   .init = start.inner,
                                   .output_init = start.output,
                                   .dtypes = c.dtypes});
}

MlpOptions mlp_options_of(const DecoderConfig& c) {
  const StartingWeights start(c);
  return {.up_init = start.inner,
          .down_init = start.output,
          .activation = c.hidden_act,
          .bias = c.mlp_bias,
          .dtypes = c.dtypes};
}

void check_cache(const DecoderCache& cache, size_t layers) {
  if (!cache.layers.empty() && cache.layers.size() != layers)
    fail(ErrorKind::invalid_argument, "decode", "a cache of {} layers, expected {}. Give each model and text its own.",
         cache.layers.size(), layers);
}

Array constrained(const Array& x) { return with_sharding_constraint(x, {"batch", "stream_seq", none}); }

Array finished_logits(const Array& logits, const DecoderConfig& c) {
  const Array capped =
      c.final_logit_softcapping == 0 ? logits : c.final_logit_softcapping * tanh(logits / c.final_logit_softcapping);
  return c.padded_vocab_size() == c.vocab_size ? capped : slice_in_dim(capped, 0, c.vocab_size, -1);
}

void init_embed(Embedding& embed, const Key& key, const DecoderConfig& c) {
  embed = Embedding::init(key, {"vocab", c.padded_vocab_size()}, embed_axis(c), init::normal(0.02), c.dtypes);
  embed.vocab = c.vocab_size;
}

Array embedded(const Embedding& embed, const DecoderConfig& c, const Array& ids, int64_t, const TokenInputs&) {
  const Array x = embed(ids);
  return c.family == DecoderFamily::gemma2 ? x * std::sqrt(static_cast<double>(c.hidden_size)) : x;
}

Array attended(const Param& tokens, const Array& x) { return Embedding{.tokens = tokens}.attend(x); }

}  // namespace tessera::nn::detail
