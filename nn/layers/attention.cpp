// Implements MultiheadAttention: splits into heads, attends, merges the heads.
#include "nn/layers/attention.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "nn/layers/shapes.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/index/slicing.h"
#include "sharding/operations/linalg/linear_algebra.h"
#include "sharding/operations/neural/attention_masks.h"
#include "sharding/operations/neural/normalization.h"
#include "sharding/operations/shape/joining.h"
#include "sharding/operations/shape/shapes.h"

namespace tessera::nn {

namespace {

void check_heads(const Axis& heads, int64_t num_heads) {
  if (num_heads < 1)
    fail(ErrorKind::invalid_argument, "MultiheadAttention",
         "{} heads given for the axis \"{}\" = {}, expected at least 1: they follow the axes.", num_heads, heads.name,
         heads.size);
  if (heads.size < num_heads || heads.size % num_heads)
    fail(ErrorKind::invalid_argument, "MultiheadAttention",
         "axis \"{}\" = {} is not divisible by {} heads. Change one of them.", heads.name, heads.size, num_heads);
}

int64_t checked_num_kv_heads(const Axis& kv_features, int64_t num_heads, int64_t head_dim) {
  const int64_t n = kv_features.size / head_dim;
  if (n < 1 || kv_features.size % head_dim || num_heads % n)
    fail(ErrorKind::invalid_argument, "MultiheadAttention",
         "axis \"{}\" = {} for {} heads of {}, expected {} times a divisor of {}.", kv_features.name, kv_features.size,
         num_heads, head_dim, head_dim, num_heads);
  return n;
}

// Throws for options with which every call would throw.
void check_options(const AttentionOptions& options, int64_t head_dim) {
  if (options.rope) (*options.rope)(zeros({1, 1, head_dim}));
  if (const auto& t = options.temperature; t && !(std::isfinite(t->scale) && t->floor_scale > 0))
    fail(ErrorKind::invalid_argument, "MultiheadAttention",
         "temperature with scale = {} and floor_scale = {}, expected numbers, and a floor_scale above 0.", t->scale,
         t->floor_scale);
  tessera::detail::check_limits("MultiheadAttention", options.window, options.chunk, options.softcap);
}

void check_stream(const Array& x) {
  if (x.ndim() != 3)
    fail(ErrorKind::shape_mismatch, "MultiheadAttention", "given {}, expected (batch, seq, embed).", x.type_string());
}

void check_context(const MultiheadAttention& layer, const AttentionInputs& with) {
  if (layer.causal || layer.rope)
    fail(ErrorKind::invalid_argument, "MultiheadAttention",
         "a context given to a layer that is causal or rotates positions, which does not apply to a context. Make it "
         "with {.causal = false} and no rope.");
  if (!with.segment_ids.is_absent() || !with.segment_starts.is_absent())
    fail(ErrorKind::invalid_argument, "MultiheadAttention",
         "segments together with a context, which has none. Give a mask (batch, 1, seq, keys).");
}

void check_positions(const MultiheadAttention& layer, const Array& positions) {
  if (!positions.is_absent() && !layer.rope && !layer.temperature)
    fail(ErrorKind::invalid_argument, "MultiheadAttention",
         "positions given to a layer that does not read them. Make it with {.rope = nn::RotaryEmbedding{}}.");
}

// Throws if k and v read a context of a different size than x, and no context was given.
void check_self(const MultiheadAttention& layer, const Array& x) {
  const Array &q = layer.q.kernel, &k = layer.k.kernel;
  if (q.is_absent() || k.is_absent() || q.shape(0) == k.shape(0) || x.shape(-1) != q.shape(0)) return;
  const AxisName axis = axis_of(layer.k.kernel, 0);
  fail(ErrorKind::invalid_argument, "MultiheadAttention",
       "no context given to a layer whose keys and values read one of (batch, keys, {}) with {} features, expected "
       "attention(x, {{.context = encoded}}).",
       axis.is_none() ? "context" : axis.name(), k.shape(0));
}

struct Heads {
  const char* field;
  int64_t number;
};

Array split_heads(const Array& y, const Heads& heads) {
  check_divisor("MultiheadAttention", heads.field, heads.number, y.shape(2));
  return reshape(y, {y.shape(0), y.shape(1), heads.number, y.shape(2) / heads.number});
}
Heads heads_of(const MultiheadAttention& layer) { return {"num_heads", layer.num_heads}; }
Heads kv_heads_of(const MultiheadAttention& layer) { return {"num_kv_heads", layer.num_kv_heads}; }

// The rotary positions of x: those from an offset on, or one of each token.
struct Positions {
  int64_t offset;
  const Array& each;
};

// Returns queries or keys (batch, seq, heads, head_dim) that are normalized and rotated. A norm with as many features
// as y normalizes all heads together.
Array finished_heads(const MultiheadAttention& layer, const Array& y, const std::optional<RMSNorm>& norm,
                     const Heads& heads, const Positions& at) {
  const bool all_heads = norm && !norm->scale.value.is_absent() && norm->scale.value.shape(0) == y.shape(2);
  Array x = split_heads(all_heads ? (*norm)(y) : y, heads);
  if (norm && !all_heads) x = (*norm)(x);
  if (layer.rope) x = at.each.is_absent() ? (*layer.rope)(x, at.offset) : (*layer.rope)(x, at.each);
  return layer.qk_norm_after_rope ? rms_norm(x, *layer.qk_norm_after_rope) : x;
}

Array keys_of(const MultiheadAttention& layer, const Array& x, const Positions& at) {
  return finished_heads(layer, layer.k(x), layer.k_norm, kv_heads_of(layer), at);
}
Array queries_of(const MultiheadAttention& layer, const Array& x, const Positions& at) {
  const Array queries = finished_heads(layer, layer.q(x), layer.q_norm, heads_of(layer), at);
  if (!layer.temperature) return queries;
  const Array places = at.each.is_absent() ? arange(at.offset, at.offset + x.shape(1)) : at.each;
  const Array wide = astype(places, promote(queries.dtype(), float32));
  const Array factor = 1 + layer.temperature->scale * log1p(floor((wide + 1) / layer.temperature->floor_scale));
  return astype(queries * expand_dims(factor, {-2, -1}), queries.dtype());
}

// Throws unless queries and keys (batch, positions, heads, head_dim) have the same head_dim and the kv heads divide the
// heads.
void check_groups(const Array& queries, const Array& keys) {
  if (queries.shape(3) == keys.shape(3) && queries.shape(2) % keys.shape(2) == 0) return;
  fail(ErrorKind::invalid_argument, "MultiheadAttention",
       "num_heads = {} of {} features each and num_kv_heads = {} of {}, expected as many features, and a divisor of "
       "the heads.",
       queries.shape(2), queries.shape(3), keys.shape(2), keys.shape(3));
}

// Throws unless the cache is (batch, length, kv_heads, head_dim) with the batch, heads and head_dim of the new
// positions.
void check_cache(const KeyValueCache& cache, const Array& x, const MultiheadAttention& layer) {
  const auto fits = [&](const Array& held, const Linear& made_by) {
    const int64_t features = made_by.kernel.value.shape(-1);
    return held.ndim() == 4 && held.shape(0) == x.shape(0) && held.shape(2) == layer.num_kv_heads &&
           held.shape(2) * held.shape(3) == features;
  };
  const bool empty = cache.keys.is_absent() && cache.values.is_absent();
  if (empty || layer.k.kernel.value.is_absent() || layer.v.kernel.value.is_absent()) return;
  const int64_t features = layer.k.kernel.value.shape(-1);
  check_divisor("MultiheadAttention", "num_kv_heads", layer.num_kv_heads, features);
  const bool whole = !cache.keys.is_absent() && !cache.values.is_absent();
  if (whole && fits(cache.keys, layer.k) && fits(cache.values, layer.v) && cache.keys.shape(1) == cache.values.shape(1))
    return;
  const auto name = [](const Array& x) { return x.is_absent() ? "absent" : x.type_string(); };
  fail(ErrorKind::shape_mismatch, "MultiheadAttention.decode",
       "the cache's keys are {} and its values {}, expected (batch, length, kv_heads, head_dim) with a batch of {} and "
       "{} kv heads of {}. Give each layer and each text its own cache.",
       name(cache.keys), name(cache.values), x.shape(0), layer.num_kv_heads, features / layer.num_kv_heads);
}

Array merge_heads(const Array& y) { return reshape(y, {y.shape(0), y.shape(1), y.shape(2) * y.shape(3)}); }

// Returns whether queries (..., seq) and keys (..., keys) at these positions are in the same chunk: (..., seq, keys).
Array in_same_chunk(const MultiheadAttention& layer, const Array& queries, const Array& keys) {
  const auto chunk = static_cast<int32_t>(std::min<int64_t>(layer.chunk, std::numeric_limits<int32_t>::max()));
  const auto number = [&](const Array& at) { return floor_divide(at, chunk); };
  return equal(expand_dims(number(queries), {-1}), expand_dims(number(keys), {-2}));
}

// Returns the mask of keys that are visible by their position (see tessera::DotProductAttentionOptions).
Array sight(const MultiheadAttention& layer, int64_t seq, int64_t keys, bool in_chunks) {
  const auto from = [&](int64_t k) { return tri(seq, {.columns = keys, .k = k, .dtype = boolean}); };
  Array seen = from(layer.causal ? 0 : layer.window ? layer.window - 1 : keys);
  if (layer.window) seen = seen & !from(-layer.window);
  return in_chunks ? seen & in_same_chunk(layer, arange(seq), arange(keys)) : seen;
}

// Returns the mask (batch, 1, seq, keys) of chunks in rows that begin after padding; `positions` (batch, seq) are those
// of the last tokens.
Array chunks_of_rows(const MultiheadAttention& layer, const Array& positions, int64_t keys) {
  const int64_t seq = positions.shape(1);
  const Array padding = keys - 1 - slice_in_dim(positions, seq - 1, seq, 1);
  const auto from = [&](int64_t first) { return maximum(expand_dims(arange(first, keys), {0}) - padding, 0); };
  return expand_dims(in_same_chunk(layer, from(keys - seq), from(0)), {1});
}

Array both(const Array& mask, const Array& seen) { return mask.is_absent() ? seen : mask & seen; }

// Returns the weights of the keys, without the weight of the sinks.
Array weights_of(const MultiheadAttention& layer, const Array& logits) {
  if (!layer.sinks) return softmax(logits);
  Shape column = logits.shape();
  column.back() = 1;
  const Array sinks = astype(reshape(layer.sinks->value, {1, logits.shape(1), 1, 1}), logits.dtype());
  return slice_in_dim(softmax(concatenate({logits, broadcast_to(sinks, column)}, -1)), 0, logits.shape(3), -1);
}

DotProductAttentionOptions options_of(const MultiheadAttention& layer) {
  return {.causal = layer.causal,
          .window = layer.window,
          .chunk = layer.chunk,
          .scale = layer.scale,
          .softcap = layer.softcap,
          .sinks = layer.sinks ? layer.sinks->value : Array()};
}

void check_batch(const Array& q, const Array& k) {
  if (q.shape(0) != k.shape(0))
    fail(ErrorKind::shape_mismatch, "MultiheadAttention", "given a batch of {} and a context of {}, expected as many.",
         q.shape(0), k.shape(0));
}

// Computes tessera::dot_product_attention with dropout of the weights between softmax and values. The logits are
// float32 or wider, as in its kernels.
Array attend_with_dropout(const MultiheadAttention& layer, const Array& q, const Array& k, const Array& v,
                          const AttentionInputs& with) {
  tessera::detail::check_mask_and_bias("MultiheadAttention", with.mask, with.bias);
  const DType wide = promote(q.dtype(), float32);
  const int64_t heads = q.shape(2), group = heads / k.shape(2);
  const Array keys = group == 1 ? k : repeat(k, group, 2), values = group == 1 ? v : repeat(v, group, 2);
  const double scale = layer.scale.value_or(1 / std::sqrt(static_cast<double>(q.shape(3))));
  Array logits = einsum("bqhd,bkhd->bhqk", {astype(q, wide), astype(keys, wide)}) * scale;
  if (layer.softcap > 0) logits = layer.softcap * tanh(logits / layer.softcap);
  if (!with.bias.is_absent()) logits = logits + with.bias;
  const double unseen = std::numeric_limits<float>::lowest() / 2;
  const auto hide_others = [&](const Array& seen) { logits = where(seen, logits, unseen); };
  const bool in_chunks = layer.chunk && with.positions.is_absent();
  if (layer.causal || layer.window || in_chunks) hide_others(sight(layer, q.shape(1), k.shape(1), in_chunks));
  if (!with.mask.is_absent()) hide_others(with.mask);
  tessera::detail::check_segments(q, k, with.segment_ids, with.segment_starts, 0);
  const Array ids = with.segment_starts.is_absent() ? with.segment_ids
                                                    : tessera::detail::segment_ids_of(with.segment_starts, q.shape(1));
  if (!ids.is_absent()) hide_others(expand_dims(equal(expand_dims(ids, {2}), expand_dims(ids, {1})), {1}));
  return einsum("bhqk,bkhd->bqhd", {astype(layer.dropout(weights_of(layer, logits), with.key), v.dtype()), values});
}

}  // namespace

Array RotaryEmbedding::operator()(Operand x, int64_t offset) const {
  return rotary_embedding(
      x, {.offset = offset, .base = base, .dims = dims, .scaling = scaling, .interleaved = interleaved});
}

Array RotaryEmbedding::operator()(Operand x, const Array& positions) const {
  return rotary_embedding(
      x, {.positions = positions, .base = base, .dims = dims, .scaling = scaling, .interleaved = interleaved});
}

MultiheadAttention MultiheadAttention::init(const Key& key, const Axis& embed, const Axis& heads, int64_t num_heads,
                                            const AttentionOptions& options) {
  check_heads(heads, num_heads);
  const Axis& kv_features = options.kv_features ? *options.kv_features : heads;
  const Axis& read = options.context ? *options.context : embed;
  const int64_t head_dim = heads.size / num_heads,
                num_kv_heads = checked_num_kv_heads(kv_features, num_heads, head_dim);
  check_options(options, head_dim);
  check_rate("MultiheadAttention", options.dropout);
  const auto keys = split<4>(key);
  const LinearOptions in{.bias = options.bias, .kernel_init = options.init, .dtypes = options.dtypes};
  const LinearOptions out{
      .bias = options.output_bias.value_or(options.bias), .kernel_init = options.output_init, .dtypes = options.dtypes};
  const auto norm = [&](const Axis& features) -> std::optional<RMSNorm> {
    if (!options.qk_norm) return std::nullopt;
    const Axis head("head_dim", head_dim);
    return RMSNorm::init(options.qk_norm_all_heads ? features : head, *options.qk_norm, options.dtypes);
  };
  std::optional<Param> sinks;
  if (options.sinks) sinks = Param{options.dtypes.param(zeros({num_heads})), {none}};
  return {.q = Linear::init(keys[0], embed, heads, in),
          .k = Linear::init(keys[1], read, kv_features, in),
          .v = Linear::init(keys[2], read, kv_features, in),
          .o = Linear::init(keys[3], heads, embed, out),
          .num_heads = num_heads,
          .num_kv_heads = num_kv_heads,
          .causal = options.causal,
          .rope = options.rope,
          .dropout = {.rate = options.dropout},
          .q_norm = norm(heads),
          .k_norm = norm(kv_features),
          .qk_norm_after_rope = options.qk_norm_after_rope,
          .temperature = options.temperature,
          .window = options.window,
          .chunk = options.chunk,
          .scale = options.scale,
          .softcap = options.softcap,
          .sinks = sinks,
          .context_parallelism = options.context_parallelism};
}

Array MultiheadAttention::operator()(Operand input, const AttentionInputs& with) const {
  const LayerScope scope(*this, input);
  const Array& x = input.array();
  check_stream(x);
  const bool self = with.context.is_absent();
  if (self)
    check_self(*this, x);
  else
    check_context(*this, with), check_stream(with.context);
  check_positions(*this, with.positions);
  const Array& read = self ? x : with.context;
  const Positions at{0, with.positions};
  const Array queries = queries_of(*this, x, at), keys = keys_of(*this, read, at);
  const Array values = split_heads(v(read), kv_heads_of(*this));
  check_groups(queries, keys), check_batch(queries, keys);
  const Shape logits{x.shape(0), num_heads, x.shape(1), read.shape(1)};
  check_broadcasts("MultiheadAttention", "mask", with.mask, logits);
  check_broadcasts("MultiheadAttention", "bias", with.bias, logits);
  AttentionInputs limited = with;
  DotProductAttentionOptions options = options_of(*this);
  if (chunk && !with.positions.is_absent()) {
    const Array seen = in_same_chunk(*this, with.positions, with.positions);
    limited.mask = both(with.mask, seen.ndim() == 3 ? expand_dims(seen, {1}) : seen), options.chunk = 0;
  }
  if (dropout.is_active()) return o(merge_heads(attend_with_dropout(*this, queries, keys, values, limited)));
  options.bias = with.bias, options.mask = limited.mask;
  options.segment_ids = with.segment_ids, options.segment_starts = with.segment_starts;
  options.context = context_parallelism;
  return o(merge_heads(dot_product_attention(queries, keys, values, options)));
}

Array MultiheadAttention::decode(Operand input, KeyValueCache& cache, const DecodeInputs& with) const {
  const LayerScope scope(*this, input);
  const Array& x = input.array();
  check_stream(x);
  check_decodes("MultiheadAttention", causal), check_self(*this, x), check_cache(cache, x, *this);
  const Positions at{cache.length(), with.positions};
  KeyValueCache longer = cache;
  longer.append(keys_of(*this, x, at), split_heads(v(x), kv_heads_of(*this)));
  const Array queries = queries_of(*this, x, at);
  check_groups(queries, longer.keys);
  check_broadcasts("MultiheadAttention", "mask", with.mask, {x.shape(0), num_heads, x.shape(1), longer.length()});
  DotProductAttentionOptions options = options_of(*this);
  options.mask = with.mask, options.offset = at.offset;
  if (chunk && !with.positions.is_absent()) {
    options.mask = both(with.mask, chunks_of_rows(*this, with.positions, longer.length())), options.chunk = 0;
  }
  const Array out = o(merge_heads(dot_product_attention(queries, longer.keys, longer.values, options)));
  cache = longer;
  return out;
}

}  // namespace tessera::nn
