// Implements the parts of a decoder, and makes them from a config.
#include "nn/models/decoder_layer.h"

#include <cmath>

#include "nn/layers/embedding.h"
#include "nn/layers/module_scope.h"
#include "nn/layers/norm.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/index/indexing.h"
#include "sharding/operations/index/slicing.h"
#include "sharding/operations/neural/normalization.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::nn {

namespace {

// Initializers of a decoder's weights. Kernels that write to the residual stream (`output`) start with smaller values;
// the factor depends on the number of these kernels.
struct StartingWeights {
  Initializer inner, output;

  explicit StartingWeights(const DecoderConfig& c)
      : inner(init::normal(0.02)),
        output(init::normal(0.02 / std::sqrt(2.0 * static_cast<double>(c.num_hidden_layers)))) {}
};

// Makes the initial factor of a norm 1, with an offset.
template <class Norm>
void set_offset(Norm& norm, double offset) {
  norm.scale.value = full(norm.scale.value.shape(), 1 - offset, {.dtype = norm.dtypes.params});
  norm.offset = offset;
}

Axis embed_axis(const DecoderConfig& c) { return {"embed", c.hidden_size}; }

std::optional<double> scale_of_attention(const DecoderConfig& c, int64_t layer) {
  if (c.scale_attn_by_inverse_layer_idx) return c.scale_of_attention() / static_cast<double>(layer + 1);
  return c.attention_scale;
}

LatentAttention latent_attention_of(const Key& key, const DecoderConfig& c, int64_t layer) {
  const StartingWeights start(c);
  return LatentAttention::init(key, embed_axis(c), "heads", c.num_attention_heads,
                               {.q_lora_rank = c.q_lora_rank ? std::optional(c.q_lora_rank) : std::nullopt,
                                .kv_lora_rank = c.kv_lora_rank,
                                .qk_nope_head_dim = c.qk_nope_head_dim,
                                .qk_rope_head_dim = c.head_dim,
                                .v_head_dim = c.v_head_dim,
                                .bias = c.attention_bias,
                                .rope = c.rope,
                                .scale = scale_of_attention(c, layer),
                                .init = start.inner,
                                .output_init = start.output,
                                .dtypes = c.dtypes});
}

MultiheadAttention attention_of(const Key& key, const DecoderConfig& c, int64_t layer) {
  const StartingWeights start(c);
  const std::optional<RotaryEmbedding> rope = c.rope_of(layer);
  auto attn = MultiheadAttention::init(
      key, embed_axis(c), {"heads", c.num_attention_heads * c.head_dim}, c.num_attention_heads,
      {.bias = c.attention_bias,
       .output_bias = c.output_bias,
       .kv_features = Axis{"kv_heads", c.num_key_value_heads * c.head_dim},
       .rope = rope,
       .qk_norm = c.qk_norm ? std::optional(c.rms_norm_eps) : std::nullopt,
       .qk_norm_all_heads = c.qk_norm_all_heads,
       .qk_norm_after_rope = c.qk_norm_after_rope && rope ? std::optional(c.rms_norm_eps) : std::nullopt,
       .temperature = rope ? std::nullopt : c.query_temperature,
       .window = c.sliding_window(layer),
       .chunk = rope ? c.attention_chunk_size : 0,
       .scale = scale_of_attention(c, layer),
       .softcap = c.attn_logit_softcapping,
       .sinks = c.attention_sinks,
       .init = start.inner,
       .output_init = start.output,
       .dtypes = c.dtypes});
  for (std::optional<RMSNorm>* norm : {&attn.q_norm, &attn.k_norm})
    if (*norm && c.norm_offset != 0) set_offset(**norm, c.norm_offset);
  return attn;
}

MoeMlp experts_of(const Key& key, const DecoderConfig& c) {
  const StartingWeights start(c);
  const int64_t hidden = c.moe_intermediate_size ? c.moe_intermediate_size : c.intermediate_size;
  return MoeMlp::init(key, embed_axis(c), {"mlp", hidden}, {"experts", c.num_local_experts},
                      {.top_k = c.num_experts_per_tok,
                       .capacity_factor = std::nullopt,
                       .gated = true,
                       .score = c.router_score,
                       .normalize = c.norm_topk_prob,
                       .scale = c.routed_scaling_factor,
                       .balance_bias = c.has_balance_bias,
                       .router_bias = c.expert_bias,
                       .expert_bias = c.expert_bias,
                       .clamped_gate = c.clamped_gate,
                       .num_groups = c.n_group,
                       .top_k_groups = c.topk_group,
                       .scale_inputs = c.scale_expert_inputs,
                       .num_shared_experts = c.n_shared_experts,
                       .router_init = start.inner,
                       .up_init = start.inner,
                       .down_init = start.output,
                       .dtypes = c.dtypes});
}

std::variant<GatedMlp, Mlp, MoeMlp> mlp_of(const Key& key, const DecoderConfig& c, int64_t layer) {
  if (c.has_experts(layer)) return experts_of(key, c);
  const StartingWeights start(c);
  const Axis embed = embed_axis(c), hidden{"mlp", c.intermediate_size};
  const MlpOptions options{.up_init = start.inner,
                           .down_init = start.output,
                           .activation = c.hidden_act,
                           .bias = c.mlp_bias,
                           .dtypes = c.dtypes};
  if (c.gated_mlp) return GatedMlp::init(key, embed, hidden, options);
  return Mlp::init(key, embed, hidden, options);
}

bool reads_positions(const MultiheadAttention& attn) { return attn.rope || attn.temperature; }
bool reads_positions(const LatentAttention&) { return true; }

Array normed(const std::optional<DecoderNorm>& norm, const Array& x) { return norm ? (*norm)(x) : x; }

// Calls the MLP; without experts, the result has the output alone.
MoeResult expanded(const DecoderLayer& block, const Array& x) {
  if (const auto* experts = std::get_if<MoeMlp>(&block.mlp)) return (*experts)(x);
  if (const auto* gated = std::get_if<GatedMlp>(&block.mlp)) return {.out = (*gated)(x)};
  return {.out = std::get<Mlp>(block.mlp)(x)};
}

// Computes a block with the attention `attend`. `between` is applied to the residual stream between its two halves.
template <class Attend, class Between>
MoeResult block_result(const DecoderLayer& block, const Array& in, const Attend& attend, const Between& between) {
  const double r = block.residual_multiplier;
  const auto add = [&](const Array& x, const Array& term) { return x + (r == 1 ? term : r * term); };
  const Array first = normed(block.norm1, in);
  const Array x = between(add(in, normed(block.attn_norm, attend(first))));
  MoeResult result =
      expanded(block, block.is_parallel ? (block.norm2 ? (*block.norm2)(in) : first) : normed(block.norm2, x));
  result.out = add(x, normed(block.mlp_norm, result.out));
  return result;
}

}  // namespace

DecoderNorm DecoderNorm::init(const DecoderConfig& c) {
  const Axis axis{"norm", c.hidden_size};
  const LayerNorm layer = LayerNorm::init(axis, c.rms_norm_eps, c.dtypes);
  DecoderNorm norm{.scale = layer.scale, .kind = c.norm, .eps = c.rms_norm_eps, .dtypes = c.dtypes};
  if (c.norm == NormKind::layer && c.norm_bias) norm.bias = layer.bias;
  if (c.norm_offset != 0) set_offset(norm, c.norm_offset);
  return norm;
}

Array DecoderNorm::operator()(const Array& x) const {
  if (kind == NormKind::rms) return RMSNorm{.scale = scale, .eps = eps, .offset = offset, .dtypes = dtypes}(x);
  if (bias) return LayerNorm{.scale = scale, .bias = *bias, .eps = eps, .dtypes = dtypes}(x);
  const ModuleScope scope(*this);
  return dtypes.out(layer_norm(dtypes.in(x), eps) * dtypes.in(scale));
}

DecoderEmbedding DecoderEmbedding::init(const Key& key, const DecoderConfig& c) {
  const auto table = [&](const Key& k, const char* name, int64_t rows) {
    return Embedding::init(k, {name, rows}, embed_axis(c), init::normal(0.02), c.dtypes).tokens;
  };
  const auto [k1, k2] = split<2>(key);
  DecoderEmbedding embed{.tokens = table(c.learned_positions ? k1 : key, "vocab", c.padded_vocab_size()),
                         .vocab = c.vocab_size,
                         .position_offset = c.position_offset,
                         .multiplier = c.embedding_multiplier,
                         .dtypes = c.dtypes};
  if (c.learned_positions) embed.positions = table(k2, "positions", c.max_position_embeddings + c.position_offset);
  return embed;
}

Array DecoderEmbedding::operator()(const Array& ids, int64_t start, const Array& at) const {
  const ModuleScope scope(*this);
  const Array rows = dtypes.out(embedding(dtypes.in(tokens), ids, {}, vocab));
  const Array x = multiplier == 1 ? rows : rows * multiplier;
  if (!positions) return x;
  if (!at.is_absent() && at.shape() != ids.shape())
    fail(ErrorKind::shape_mismatch, "DecoderEmbedding", "positions {} for ids {}, expected one for each.",
         at.type_string(), ids.type_string());
  const Array table = dtypes.in(*positions);
  const int64_t end = start + ids.shape(-1), most = table.shape(0) - position_offset;
  if (!at.is_absent())  // a position below 0 would be a row before the offset
    return x + dtypes.out(embedding(
                   position_offset ? slice_in_dim(table, position_offset, most + position_offset, 0) : table, at));
  if (end > most)
    fail(ErrorKind::invalid_argument, "DecoderEmbedding", "{} tokens, expected at most {}, for which it has positions.",
         end, most);
  return x + dtypes.out(slice_in_dim(table, position_offset + start, position_offset + end, 0));
}

DecoderLayer DecoderLayer::init(const Key& key, const DecoderConfig& c, int64_t layer) {
  using enum NormPlacement;
  const auto [k1, k2] = split<2>(key);
  const auto attn = [&, key = k1]() -> std::variant<MultiheadAttention, LatentAttention> {
    if (c.kv_lora_rank) return latent_attention_of(key, c, layer);
    return attention_of(key, c, layer);
  };
  const auto norm = [&](bool has) { return has ? std::optional(DecoderNorm::init(c)) : std::nullopt; };
  const NormPlacement at = c.norm_placement;
  return {.norm1 = norm(at != post),
          .attn = attn(),
          .attn_norm = norm(at == post || at == both),
          .norm2 = norm(at == pre || at == both || at == parallel),
          .mlp = mlp_of(k2, c, layer),
          .mlp_norm = norm(at == post || at == both),
          .is_parallel = at == parallel || at == parallel_shared,
          .residual_multiplier = c.residual_multiplier};
}

MoeResult DecoderLayer::routed(const Array& in, const TokenInputs& with) const {
  const ModuleScope scope(*this);
  const auto attend = [&](const Array& x) {
    return std::visit(
        [&](const auto& layer) {
          return layer(x, {.segment_ids = with.segment_ids,
                           .positions = reads_positions(layer) ? with.positions : Array(),
                           .segment_starts = with.segment_starts});
        },
        attn);
  };
  return block_result(*this, in, attend, [](const Array& x) {
    return with_sharding_constraint(x, {"batch", "stream_seq", none});
  });
}

Array DecoderLayer::decode(const Array& in, KeyValueCache& cache, const DecodeInputs& with) const {
  const ModuleScope scope(*this);
  const auto attend = [&](const Array& x) {
    return std::visit(
        [&](const auto& layer) {
          const Array positions = reads_positions(layer) ? with.positions : Array();
          return layer.decode(x, cache, {.mask = with.mask, .positions = positions});
        },
        attn);
  };
  return block_result(*this, in, attend, [](const Array& x) { return x; }).out;
}

}  // namespace tessera::nn
