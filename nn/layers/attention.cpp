// Attention: split into heads, attend, merge.
#include "nn/layers/attention.h"

#include <fmt/format.h>

#include "sharding/error.h"

namespace tessera::nn {

namespace {

void check_heads(const Axis& heads, int64_t num_heads) {
  if (num_heads < 1 || heads.size < num_heads || heads.size % num_heads)
    fail(ErrorKind::bad_argument, "MultiheadAttention",
         fmt::format("axis \"{}\" = {} is not divisible by {} heads. Change one of them.", heads.name, heads.size,
                     num_heads));
}

int64_t checked_kv_heads(const Axis& kv_heads, int64_t num_heads, int64_t head_dim) {
  const int64_t n = kv_heads.size / head_dim;
  if (n < 1 || kv_heads.size % head_dim || num_heads % n)
    fail(ErrorKind::bad_argument, "MultiheadAttention",
         fmt::format("axis \"{}\" = {} for {} heads of {}, expected {} times a divisor of {}.", kv_heads.name,
                     kv_heads.size, num_heads, head_dim, head_dim, num_heads));
  return n;
}

}  // namespace

void KeyValueCache::append(const Array& new_keys, const Array& new_values) {
  keys = keys.is_absent() ? new_keys : concatenate({keys, new_keys}, 1);
  values = values.is_absent() ? new_values : concatenate({values, new_values}, 1);
}

MultiheadAttention MultiheadAttention::init(const Key& key, const Axis& embed, const Axis& heads, int64_t num_heads,
                                            const AttentionOptions& options) {
  check_heads(heads, num_heads);
  const Axis& kv_heads = options.kv_heads ? *options.kv_heads : heads;
  const auto keys = split<4>(key);
  const LinearOptions in{.bias = options.bias, .kernel_init = options.init};
  const LinearOptions out{.bias = options.bias, .kernel_init = options.output_init};
  return {.q = Linear::init(keys[0], embed, heads, in),
          .k = Linear::init(keys[1], embed, kv_heads, in),
          .v = Linear::init(keys[2], embed, kv_heads, in),
          .o = Linear::init(keys[3], heads, embed, out),
          .num_heads = num_heads,
          .num_kv_heads = checked_kv_heads(kv_heads, num_heads, heads.size / num_heads),
          .causal = options.causal,
          .rope_base = options.rope_base};
}

Array MultiheadAttention::operator()(const Array& x) const {
  KeyValueCache nothing;
  return decode(x, nothing);
}

Array MultiheadAttention::decode(const Array& x, KeyValueCache& cache) const {
  const int64_t start = cache.length();
  const auto in_heads = [&](const Array& y, int64_t n) { return reshape(y, {y.shape(0), y.shape(1), n, -1}); };
  const auto rotated = [&](const Array& y) { return rope_base ? rotary_embedding(y, start, *rope_base) : y; };
  const Array queries = rotated(in_heads(q(x), num_heads));
  const Array keys = rotated(in_heads(k(x), num_kv_heads)), values = in_heads(v(x), num_kv_heads);
  cache.append(keys, values);
  const Array mixed = dot_product_attention(queries, cache.keys, cache.values, causal, start);
  return o(reshape(mixed, {x.shape(0), x.shape(1), -1}));
}

}  // namespace tessera::nn
