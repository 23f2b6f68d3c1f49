// Attention: split into heads, attend, merge.
#include "nn/layers/attention.h"

#include <fmt/format.h>

#include "sharding/error.h"

namespace tessera::nn {

MultiheadAttention MultiheadAttention::init(const Key& key, const Axis& embed, const Axis& heads, int64_t num_heads,
                                            const AttentionOptions& options) {
  if (num_heads < 1 || heads.size % num_heads)
    fail(ErrorKind::bad_argument, "MultiheadAttention",
         fmt::format("axis \"{}\" = {} is not divisible by {} heads. Change one of them.", heads.name, heads.size,
                     num_heads));
  const auto keys = split<4>(key);
  const LinearOptions in{.bias = options.bias, .kernel_init = options.init};
  const LinearOptions out{.bias = options.bias, .kernel_init = options.output_init};
  return {.q = Linear::init(keys[0], embed, heads, in),
          .k = Linear::init(keys[1], embed, heads, in),
          .v = Linear::init(keys[2], embed, heads, in),
          .o = Linear::init(keys[3], heads, embed, out),
          .num_heads = num_heads,
          .causal = options.causal};
}

Array MultiheadAttention::operator()(const Array& x) const {
  const auto in_heads = [&](const Array& y) { return reshape(y, {y.shape(0), y.shape(1), num_heads, -1}); };
  const Array mixed = dot_product_attention(in_heads(q(x)), in_heads(k(x)), in_heads(v(x)), causal);
  return o(reshape(mixed, {x.shape(0), x.shape(1), -1}));
}

}  // namespace tessera::nn
