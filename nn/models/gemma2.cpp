// Gemma 2's block.
#include "nn/models/gemma2.h"

#include "nn/models/decoder_stack.h"

namespace tessera::nn {

Gemma2Block Gemma2Block::init(const Key& key, const DecoderConfig& c, int64_t layer) {
  const auto [k1, k2] = split<2>(key);
  return {.norm1 = detail::rms_norm_of(c),
          .attn = detail::attention_of(k1, c, layer),
          .attn_norm = detail::rms_norm_of(c),
          .norm2 = detail::rms_norm_of(c),
          .mlp = GatedMlp::init(k2, detail::embed_axis(c), detail::mlp_axis(c), detail::mlp_options_of(c)),
          .mlp_norm = detail::rms_norm_of(c)};
}

Array Gemma2Block::operator()(const Array& in, const TokenInputs& with) const {
  const ModuleScope scope(*this);
  const Array x = detail::constrained(in + attn_norm(attn(norm1(in), detail::attention_inputs(with))));
  return x + mlp_norm(mlp(norm2(x)));
}

Array Gemma2Block::decode(const Array& in, KeyValueCache& cache, const DecodeInputs& with) const {
  const ModuleScope scope(*this);
  const Array x = in + attn_norm(attn.decode(norm1(in), cache, with));
  return x + mlp_norm(mlp(norm2(x)));
}

template struct Decoder<Embedding, Gemma2Block, RMSNorm>;

}  // namespace tessera::nn
