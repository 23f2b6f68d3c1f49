// Attention: split into heads, attend, merge.
#include "nn/layers/attention.h"

#include <fmt/format.h>

#include "sharding/caller.h"
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

// A rotation of the base and the head that every call will use: what is wrong with them is an error of init.
void check_rope(const std::optional<double>& base, int64_t head_dim) {
  if (base) rotary_embedding(zeros({1, 1, head_dim}), 0, *base);
}

void check_stream(const Array& x) {
  if (x.ndim() != 3)
    fail(ErrorKind::shape_mismatch, "MultiheadAttention",
         fmt::format("given {}, expected (batch, seq, embed).", x.type_string()));
}

}  // namespace

void KeyValueCache::append(const Array& new_keys, const Array& new_values) {
  const auto longer = [](const Array& old, const Array& y) { return old.is_absent() ? y : concatenate({old, y}, 1); };
  *this = {.keys = longer(keys, new_keys), .values = longer(values, new_values)};
}

MultiheadAttention MultiheadAttention::init(const Key& key, const Axis& embed, const Axis& heads, int64_t num_heads,
                                            const AttentionOptions& options) {
  check_heads(heads, num_heads);
  const Axis& kv_heads = options.kv_heads ? *options.kv_heads : heads;
  const int64_t head_dim = heads.size / num_heads, num_kv_heads = checked_kv_heads(kv_heads, num_heads, head_dim);
  check_rope(options.rope_base, head_dim);
  const auto keys = split<4>(key);
  const LinearOptions in{.bias = options.bias, .kernel_init = options.init};
  const LinearOptions out{.bias = options.bias, .kernel_init = options.output_init};
  return {.q = Linear::init(keys[0], embed, heads, in),
          .k = Linear::init(keys[1], embed, kv_heads, in),
          .v = Linear::init(keys[2], embed, kv_heads, in),
          .o = Linear::init(keys[3], heads, embed, out),
          .num_heads = num_heads,
          .num_kv_heads = num_kv_heads,
          .causal = options.causal,
          .rope_base = options.rope_base};
}

Array MultiheadAttention::operator()(Operand x) const {
  KeyValueCache nothing;
  return decode(x, nothing);
}

Array MultiheadAttention::decode(Operand input, KeyValueCache& cache) const {
  const CallerScope caller(input.where());
  const Array& x = input.array();
  check_stream(x);
  const int64_t batch = x.shape(0), seq = x.shape(1), start = cache.length();
  const auto in_heads = [&](const Array& y, int64_t n) { return reshape(y, {batch, seq, n, y.shape(2) / n}); };
  const auto rotated = [&](const Array& y) { return rope_base ? rotary_embedding(y, start, *rope_base) : y; };
  const Array queries = rotated(in_heads(q(x), num_heads));
  const Array keys = rotated(in_heads(k(x), num_kv_heads)), values = in_heads(v(x), num_kv_heads);
  KeyValueCache longer = cache;
  longer.append(keys, values);
  const Array mixed = dot_product_attention(queries, longer.keys, longer.values, {.causal = causal, .offset = start});
  const Array out = o(reshape(mixed, {batch, seq, mixed.shape(2) * mixed.shape(3)}));
  cache = longer;
  return out;
}

}  // namespace tessera::nn
