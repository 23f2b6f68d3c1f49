// Mixtral's block.
#include "nn/models/mixtral.h"

#include "nn/models/decoder_stack.h"

namespace tessera::nn {

MixtralBlock MixtralBlock::init(const Key& key, const DecoderConfig& c, int64_t layer) {
  const auto [k1, k2] = split<2>(key);
  const detail::StartingWeights start(c);
  const MoeOptions experts{.top_k = c.experts_per_token,
                           .capacity_factor = static_cast<double>(c.experts) / static_cast<double>(c.experts_per_token),
                           .gated = true,
                           .normalize = true,
                           .router_init = start.inner,
                           .up_init = start.inner,
                           .down_init = start.output,
                           .dtypes = c.dtypes};
  return {.norm1 = detail::rms_norm_of(c),
          .attn = detail::attention_of(k1, c, layer),
          .norm2 = detail::rms_norm_of(c),
          .moe = MoeMlp::init(k2, detail::embed_axis(c), detail::mlp_axis(c), {"experts", c.experts}, experts)};
}

Array MixtralBlock::operator()(const Array& in, const TokenInputs& with) const {
  const ModuleScope scope(*this);
  const Array x = detail::constrained(in + attn(norm1(in), detail::attention_inputs(with)));
  return x + moe(norm2(x)).out;
}

Array MixtralBlock::decode(const Array& in, KeyValueCache& cache, const DecodeInputs& with) const {
  const ModuleScope scope(*this);
  const Array x = in + attn.decode(norm1(in), cache, with);
  return x + moe(norm2(x)).out;
}

template struct Decoder<Embedding, MixtralBlock, RMSNorm>;

}  // namespace tessera::nn
