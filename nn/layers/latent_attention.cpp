// Implements LatentAttention: attends by the expanded keys of all heads, or, for one position, in compressed features.
#include "nn/layers/latent_attention.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>

#include "nn/layers/shapes.h"
#include "sharding/base/fail.h"
#include "sharding/operations/index/slicing.h"
#include "sharding/operations/linalg/linear_algebra.h"
#include "sharding/operations/shape/joining.h"
#include "sharding/operations/shape/shapes.h"

namespace tessera::nn {

namespace {

Axis unnamed(int64_t size) {
  Axis axis;
  axis.size = size;
  return axis;
}

Array features(const Array& x, int64_t from, int64_t to) { return slice_in_dim(x, from, to, -1); }

Array split_heads(const Array& y, const LatentAttention& layer) {
  check_divisor("LatentAttention", "num_heads", layer.num_heads, y.shape(2));
  return reshape(y, {y.shape(0), y.shape(1), layer.num_heads, y.shape(2) / layer.num_heads});
}
Array joined_heads(const Array& y) { return reshape(y, {y.shape(0), y.shape(1), y.shape(2) * y.shape(3)}); }

// Rotates by the positions from an offset on, or by one position of each token.
using Rotate = std::function<Array(const Array&)>;

Rotate rotation_of(const LatentAttention& layer, int64_t offset, const Array& positions) {
  return
      [&, offset](const Array& x) { return positions.is_absent() ? layer.rope(x, offset) : layer.rope(x, positions); };
}

int64_t rank_of(const LatentAttention& layer) { return layer.kv_norm.scale.value.shape(0); }
double scale_of(const LatentAttention& layer) {
  return layer.scale.value_or(1 / std::sqrt(static_cast<double>(layer.qk_nope_head_dim + layer.qk_rope_head_dim)));
}

// A head's features of queries without positions and with rotated ones: (batch, seq, heads, features).
struct Queries {
  Array plain, rotated;
};

Queries queries_of(const LatentAttention& layer, const Array& x, const Rotate& rotated) {
  const Array heads = split_heads(layer.q_down ? layer.q((*layer.q_norm)((*layer.q_down)(x))) : layer.q(x), layer);
  const int64_t plain = layer.qk_nope_head_dim;
  return {features(heads, 0, plain), rotated(features(heads, plain, heads.shape(3)))};
}

// Returns the compressed features and the rotated key of each position: (batch, seq, 1, kv_lora_rank + rotated).
Array compressed(const LatentAttention& layer, const Array& x, const Rotate& rotated) {
  const Array down = layer.kv_down(x);
  const int64_t rank = rank_of(layer);
  const Array key = rotated(expand_dims(features(down, rank, down.shape(2)), {2}));
  return concatenate({expand_dims(layer.kv_norm(features(down, 0, rank)), {2}), key}, -1);
}

// Attends to positions by the keys and values of each head.
Array attend_expanded(const LatentAttention& layer, const Queries& queries, const Array& positions,
                      DotProductAttentionOptions options) {
  const int64_t rank = rank_of(layer), plain = layer.qk_nope_head_dim;
  const Array heads = split_heads(layer.kv_up(squeeze(features(positions, 0, rank), {2})), layer);
  const Array shared = features(positions, rank, positions.shape(3));
  const Array of_each = broadcast_to(shared, {heads.shape(0), heads.shape(1), heads.shape(2), shared.shape(3)});
  options.causal = layer.causal, options.scale = scale_of(layer);
  return dot_product_attention(concatenate({queries.plain, queries.rotated}, -1),
                               concatenate({features(heads, 0, plain), of_each}, -1),
                               features(heads, plain, heads.shape(3)), options);
}

// Attends one position to all others in compressed features. The heads' queries are positions of a single head there.
Array attend_compressed(const LatentAttention& layer, const Queries& queries, const Array& positions,
                        const Array& mask) {
  const int64_t rank = rank_of(layer), batch = positions.shape(0), plain = layer.qk_nope_head_dim;
  const Array kernel = layer.kv_up.dtypes.in(merge_lora(layer.kv_up).kernel);
  const Array up = reshape(kernel, {rank, layer.num_heads, kernel.shape(1) / layer.num_heads});
  const Array query =
      concatenate({einsum("bthn,rhn->bthr", {queries.plain, features(up, 0, plain)}), queries.rotated}, -1);
  DotProductAttentionOptions options{.scale = scale_of(layer), .context = ContextParallelism::gather};
  if (!mask.is_absent())
    options.mask = reshape(broadcast_to(mask, {batch, layer.num_heads, 1, positions.shape(1)}),
                           {batch, 1, layer.num_heads, positions.shape(1)});
  const Array mixed =
      dot_product_attention(reshape(query, {batch, layer.num_heads, 1, query.shape(3)}), positions, positions, options);
  const Array heads = reshape(features(mixed, 0, rank), {batch, 1, layer.num_heads, rank});
  return einsum("bthr,rhv->bthv", {heads, features(up, plain, up.shape(2))});
}

void check_call(const Array& x, const AttentionInputs& with) {
  check_dims("LatentAttention", x, 3, "(batch, seq, embed)");
  if (!with.context.is_absent())
    fail(ErrorKind::invalid_argument, "LatentAttention", "a context given, expected none: it attends to x alone.");
}

void check_cache(const LatentAttention& layer, const KeyValueCache& cache, const Array& x) {
  if (cache.keys.is_absent()) return;
  const int64_t size = rank_of(layer) + layer.qk_rope_head_dim;
  if (cache.keys.shape() != Shape{x.shape(0), cache.length(), 1, size})
    fail(ErrorKind::shape_mismatch, "LatentAttention.decode",
         "the cache's keys are {}, expected (batch, length, 1, {}) with a batch of {}. Give each layer and each text "
         "its own cache.",
         cache.keys.type_string(), size, x.shape(0));
}

}  // namespace

LatentAttention LatentAttention::init(const Key& key, const Axis& embed, const AxisName& heads, int64_t num_heads,
                                      const LatentAttentionOptions& o) {
  check_positive("LatentAttention", "num_heads", num_heads);
  check_positive("LatentAttention", "kv_lora_rank", o.kv_lora_rank);
  check_positive("LatentAttention", "qk_nope_head_dim", o.qk_nope_head_dim);
  check_positive("LatentAttention", "qk_rope_head_dim", o.qk_rope_head_dim);
  check_positive("LatentAttention", "v_head_dim", o.v_head_dim);
  if (o.q_lora_rank) check_positive("LatentAttention", "q_lora_rank", *o.q_lora_rank);
  tessera::detail::check_rotary([&] { return fmt::format("float32[1,1,{}]", o.qk_rope_head_dim); }, o.qk_rope_head_dim,
                                o.rope.base, o.rope.dims, o.rope.scaling);
  const auto keys = split<5>(key);
  const auto linear = [&](int i, const Axis& in, const Axis& out, bool bias = false) {
    return Linear::init(keys[i], in, out, {.bias = bias, .kernel_init = o.init, .dtypes = o.dtypes});
  };
  const auto all_heads = [&](int64_t features) { return Axis(heads.name(), num_heads * features); };
  const auto norm = [&](int64_t size) { return RMSNorm::init(unnamed(size), o.norm_eps, o.dtypes); };
  const Axis rank = unnamed(o.kv_lora_rank), q_rank = unnamed(o.q_lora_rank.value_or(0));
  LatentAttention layer{
      .q_down = {},
      .q_norm = {},
      .q = linear(1, o.q_lora_rank ? q_rank : embed, all_heads(o.qk_nope_head_dim + o.qk_rope_head_dim)),
      .kv_down = linear(2, embed, unnamed(o.kv_lora_rank + o.qk_rope_head_dim), o.bias),
      .kv_norm = norm(o.kv_lora_rank),
      .kv_up = linear(3, rank, all_heads(o.qk_nope_head_dim + o.v_head_dim)),
      .o = Linear::init(keys[4], all_heads(o.v_head_dim), embed,
                        {.bias = o.bias, .kernel_init = o.output_init, .dtypes = o.dtypes}),
      .num_heads = num_heads,
      .qk_nope_head_dim = o.qk_nope_head_dim,
      .qk_rope_head_dim = o.qk_rope_head_dim,
      .causal = o.causal,
      .rope = o.rope,
      .scale = o.scale,
      .context_parallelism = o.context_parallelism};
  if (o.q_lora_rank) layer.q_down = linear(0, embed, q_rank, o.bias), layer.q_norm = norm(*o.q_lora_rank);
  return layer;
}

Array LatentAttention::operator()(Operand input, const AttentionInputs& with) const {
  const LayerScope scope(*this, input);
  const Array& x = input.array();
  check_call(x, with);
  const Shape logits{x.shape(0), num_heads, x.shape(1), x.shape(1)};
  check_broadcasts("LatentAttention", "mask", with.mask, logits);
  check_broadcasts("LatentAttention", "bias", with.bias, logits);
  const Rotate rotated = rotation_of(*this, 0, with.positions);
  return o(joined_heads(attend_expanded(*this, queries_of(*this, x, rotated), compressed(*this, x, rotated),
                                        {.bias = with.bias,
                                         .mask = with.mask,
                                         .segment_ids = with.segment_ids,
                                         .segment_starts = with.segment_starts,
                                         .context = context_parallelism})));
}

Array LatentAttention::decode(Operand input, KeyValueCache& cache, const DecodeInputs& with) const {
  const LayerScope scope(*this, input);
  const Array& x = input.array();
  check_call(x, {}), check_decodes("LatentAttention", causal), check_cache(*this, cache, x);
  const int64_t start = cache.length();
  const Rotate rotated = rotation_of(*this, start, with.positions);
  const Array added = compressed(*this, x, rotated);
  KeyValueCache longer = cache;
  longer.append(added, features(added, 0, 0));
  check_broadcasts("LatentAttention", "mask", with.mask, {x.shape(0), num_heads, x.shape(1), longer.length()});
  const Queries queries = queries_of(*this, x, rotated);
  const Array out = o(joined_heads(
      x.shape(1) == 1 ? attend_compressed(*this, queries, longer.keys, with.mask)
                      : attend_expanded(*this, queries, longer.keys, {.mask = with.mask, .offset = start})));
  cache = longer;
  return out;
}

}  // namespace tessera::nn
