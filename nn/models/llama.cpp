// Implements the blocks of Llama, Gemma 2 and Mixtral, and Mixtral's loss.
#include "nn/models/llama.h"

#include "nn/models/decoder_stack.h"
#include "sharding/operations/reduce/reductions.h"

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

MixtralBlock MixtralBlock::init(const Key& key, const DecoderConfig& c, int64_t layer) {
  const auto [k1, k2] = split<2>(key);
  const detail::StartingWeights start(c);
  const MoeOptions experts{.top_k = c.num_experts_per_tok,
                           .capacity_factor = std::nullopt,
                           .gated = true,
                           .normalize = true,
                           .router_init = start.inner,
                           .up_init = start.inner,
                           .down_init = start.output,
                           .dtypes = c.dtypes};
  return {
      .norm1 = detail::rms_norm_of(c),
      .attn = detail::attention_of(k1, c, layer),
      .norm2 = detail::rms_norm_of(c),
      .moe = MoeMlp::init(k2, detail::embed_axis(c), detail::mlp_axis(c), {"experts", c.num_local_experts}, experts)};
}

MoeResult MixtralBlock::routed(const Array& in, const TokenInputs& with) const {
  const ModuleScope scope(*this);
  const Array x = detail::constrained(in + attn(norm1(in), detail::attention_inputs(with)));
  MoeResult result = moe(norm2(x));
  result.out = x + result.out;
  return result;
}

Array MixtralBlock::operator()(const Array& in, const TokenInputs& with) const { return routed(in, with).out; }

Array MixtralBlock::decode(const Array& in, KeyValueCache& cache, const DecodeInputs& with) const {
  const ModuleScope scope(*this);
  const Array x = in + attn.decode(norm1(in), cache, with);
  return x + moe(norm2(x)).out;
}

template <>
WeightedSum Mixtral::loss(const Array& ids, const Array& labels, const Array& weights, const TokenInputs& with) const {
  if (config.router_aux_loss_coef == 0) return detail::head_loss(*this, hidden(ids, with), labels, weights);
  const auto route = [](const MixtralBlock& block, const Array& x, const TokenInputs& given) {
    return block.routed(x, given);
  };
  Array x = detail::constrained(detail::embedded(embed, config, ids, 0, with)), choices, probabilities;
  const auto add = [](Array& total, const Array& part) { total = total.is_absent() ? part : total + part; };
  for (const MixtralBlock& block : layers) {
    const MoeResult result = remat ? nn::remat(route)(block, x, with) : route(block, x, with);
    x = detail::constrained(result.out);
    add(choices, result.choices), add(probabilities, result.probabilities);
  }
  const auto layer_count = static_cast<double>(layers.size());
  const double experts =
      static_cast<double>(config.num_local_experts * config.num_experts_per_tok) / (layer_count * layer_count);
  const WeightedSum loss = detail::head_loss(*this, final_norm(x), labels, weights);
  return {loss.sum + config.router_aux_loss_coef * experts * sum(choices * probabilities) * loss.weight, loss.weight};
}

template struct Decoder<Embedding, MixtralBlock, RMSNorm>;

}  // namespace tessera::nn
