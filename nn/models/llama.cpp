// The block of Llama: how it starts, what it computes, and its step in decoding.
#include "nn/models/llama.h"

#include "nn/models/decoder_stack.h"

namespace tessera::nn {

LlamaBlock LlamaBlock::init(const Key& key, const DecoderConfig& c, int64_t layer) {
  const auto [k1, k2] = split<2>(key);
  return {.norm1 = detail::rms_norm_of(c),
          .attn = detail::attention_of(k1, c, layer),
          .norm2 = detail::rms_norm_of(c),
          .mlp = GatedMlp::init(k2, detail::embed_axis(c), detail::mlp_axis(c), detail::mlp_options_of(c))};
}

Array LlamaBlock::operator()(const Array& in, const TokenInputs& with) const {
  const ModuleScope scope(*this);
  const Array x = detail::constrained(in + attn(norm1(in), detail::attention_inputs(with)));
  return x + mlp(norm2(x));
}

Array LlamaBlock::decode(const Array& in, KeyValueCache& cache, const DecodeInputs& with) const {
  const ModuleScope scope(*this);
  const Array x = in + attn.decode(norm1(in), cache, with);
  return x + mlp(norm2(x));
}

template struct Decoder<Embedding, LlamaBlock, RMSNorm>;

}  // namespace tessera::nn
