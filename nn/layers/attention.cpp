// Implements MultiheadAttention: splits into heads, attends, merges the heads.
#include "nn/layers/attention.h"

#include <fmt/ranges.h>

#include <cmath>
#include <limits>

#include "nn/layers/shapes.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
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
  tessera::detail::check_window_and_softcap("MultiheadAttention", options.window, options.softcap);
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
  if (!positions.is_absent() && !layer.rope)
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

Array queries_of(const MultiheadAttention& layer, const Array& x) {
  const Array heads = split_heads(layer.q(x), heads_of(layer));
  return layer.q_norm ? (*layer.q_norm)(heads) : heads;
}
Array keys_of(const MultiheadAttention& layer, const Array& x) {
  const Array heads = split_heads(layer.k(x), kv_heads_of(layer));
  return layer.k_norm ? (*layer.k_norm)(heads) : heads;
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

void check_broadcasts(const char* name, const Array& given, const Shape& logits) {
  if (given.is_absent() || broadcasts_to(given.shape(), logits)) return;
  fail(ErrorKind::shape_mismatch, "MultiheadAttention",
       "{} {}, expected to broadcast to (batch, heads, seq, keys) = ({}).", name, given.type_string(),
       fmt::join(logits, ", "));
}

void check_decodes(const MultiheadAttention& layer) {
  if (!layer.causal)
    fail(ErrorKind::invalid_argument, "MultiheadAttention.decode",
         "the layer is not causal, so its result at a position depends on later positions. Make it with {.causal = "
         "true}.");
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

// Returns the mask of keys that are visible by their position (see tessera::DotProductAttentionOptions).
Array sight(const MultiheadAttention& layer, int64_t seq, int64_t keys) {
  const auto from = [&](int64_t k) { return tri(seq, {.columns = keys, .k = k, .dtype = boolean}); };
  Array seen = from(layer.causal ? 0 : layer.window - 1);
  return layer.window ? seen & !from(-layer.window) : seen;
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
  if (layer.causal || layer.window) hide_others(sight(layer, q.shape(1), k.shape(1)));
  if (!with.mask.is_absent()) hide_others(with.mask);
  tessera::detail::check_segments(q, k, with.segment_ids, with.segment_starts, 0);
  const Array ids = with.segment_starts.is_absent() ? with.segment_ids
                                                    : tessera::detail::segment_ids_of(with.segment_starts, q.shape(1));
  if (!ids.is_absent()) hide_others(expand_dims(equal(expand_dims(ids, {2}), expand_dims(ids, {1})), {1}));
  return einsum("bhqk,bkhd->bqhd", {astype(layer.dropout(softmax(logits), with.key), v.dtype()), values});
}

}  // namespace

Array RotaryEmbedding::operator()(Operand x, int64_t offset) const {
  return rotary_embedding(x, {.offset = offset, .base = base, .dims = dims, .scaling = scaling});
}

Array RotaryEmbedding::operator()(Operand x, const Array& positions) const {
  return rotary_embedding(x, {.positions = positions, .base = base, .dims = dims, .scaling = scaling});
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
  const auto norm = [&]() -> std::optional<RMSNorm> {
    if (!options.qk_norm) return std::nullopt;
    return RMSNorm::init({"head_dim", head_dim}, *options.qk_norm, options.dtypes);
  };
  return {.q = Linear::init(keys[0], embed, heads, in),
          .k = Linear::init(keys[1], read, kv_features, in),
          .v = Linear::init(keys[2], read, kv_features, in),
          .o = Linear::init(keys[3], heads, embed, out),
          .num_heads = num_heads,
          .num_kv_heads = num_kv_heads,
          .causal = options.causal,
          .rope = options.rope,
          .dropout = {.rate = options.dropout},
          .q_norm = norm(),
          .k_norm = norm(),
          .window = options.window,
          .scale = options.scale,
          .softcap = options.softcap,
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
  const auto rotated = [&](const Array& y) {
    if (!rope) return y;
    return with.positions.is_absent() ? (*rope)(y) : (*rope)(y, with.positions);
  };
  const Array queries = rotated(queries_of(*this, x)), keys = rotated(keys_of(*this, read));
  const Array values = split_heads(v(read), kv_heads_of(*this));
  check_groups(queries, keys), check_batch(queries, keys);
  const Shape logits{x.shape(0), num_heads, x.shape(1), read.shape(1)};
  check_broadcasts("mask", with.mask, logits), check_broadcasts("bias", with.bias, logits);
  if (dropout.is_active()) return o(merge_heads(attend_with_dropout(*this, queries, keys, values, with)));
  return o(merge_heads(dot_product_attention(queries, keys, values,
                                             {.bias = with.bias,
                                              .mask = with.mask,
                                              .causal = causal,
                                              .window = window,
                                              .segment_ids = with.segment_ids,
                                              .segment_starts = with.segment_starts,
                                              .scale = scale,
                                              .softcap = softcap,
                                              .context = context_parallelism})));
}

Array MultiheadAttention::decode(Operand input, KeyValueCache& cache, const DecodeInputs& with) const {
  const LayerScope scope(*this, input);
  const Array& x = input.array();
  check_stream(x);
  check_decodes(*this), check_self(*this, x), check_cache(cache, x, *this);
  const int64_t start = cache.length();
  const auto rotated = [&](const Array& y) {
    if (!rope) return y;
    return with.positions.is_absent() ? (*rope)(y, start) : (*rope)(y, with.positions);
  };
  KeyValueCache longer = cache;
  longer.append(rotated(keys_of(*this, x)), split_heads(v(x), kv_heads_of(*this)));
  const Array queries = rotated(queries_of(*this, x));
  check_groups(queries, longer.keys);
  check_broadcasts("mask", with.mask, {x.shape(0), num_heads, x.shape(1), longer.length()});
  const Array mixed = dot_product_attention(
      queries, longer.keys, longer.values,
      {.mask = with.mask, .causal = causal, .offset = start, .window = window, .scale = scale, .softcap = softcap});
  const Array out = o(merge_heads(mixed));
  cache = longer;
  return out;
}

}  // namespace tessera::nn
