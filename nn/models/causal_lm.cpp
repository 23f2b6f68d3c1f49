// Forwards each call of CausalLM to its decoder.
#include "nn/models/causal_lm.h"

#include <vector>

namespace tessera::nn {

namespace {

void add_linears(MultiheadAttention& attn, std::vector<Linear*>& all) {
  all.insert(all.end(), {&attn.q, &attn.k, &attn.v, &attn.o});
}
void add_linears(GatedMlp& mlp, std::vector<Linear*>& all) { all.insert(all.end(), {&mlp.gate, &mlp.up, &mlp.down}); }
void add_linears(Mlp& mlp, std::vector<Linear*>& all) { all.insert(all.end(), {&mlp.up, &mlp.down}); }

std::vector<Linear*> linears_of(CausalLM& model) {
  std::vector<Linear*> all;
  const auto add_blocks = [&](auto& decoder) {
    for (auto& block : decoder.layers) {
      add_linears(block.attn, all);
      if constexpr (requires { block.mlp; }) add_linears(block.mlp, all);
    }
  };
  std::visit(add_blocks, model.decoder);
  return all;
}

}  // namespace

CausalLM with_lora(const Key& key, CausalLM model, const LoraOptions& options) {
  uint32_t i = 0;
  for (Linear* linear : linears_of(model)) *linear = with_lora(fold_in(key, i++), *linear, options);
  return model;
}

CausalLM merge_lora(CausalLM model) {
  for (Linear* linear : linears_of(model)) *linear = merge_lora(*linear);
  return model;
}

CausalLM CausalLM::init(const Key& key, const DecoderConfig& config) {
  switch (config.family) {
    case DecoderFamily::gpt2:
      return {Gpt2::init(key, config)};
    case DecoderFamily::gemma2:
      return {Gemma2::init(key, config)};
    case DecoderFamily::mixtral:
      return {Mixtral::init(key, config)};
    default:
      return {Llama::init(key, config)};
  }
}

void CausalLM::set_router_aux_loss_coef(double coefficient) {
  DecoderConfig changed = config();
  changed.router_aux_loss_coef = coefficient;
  check(changed);
  std::visit([&](auto& d) { d.config = changed; }, decoder);
}

Array CausalLM::hidden(const Array& ids, const TokenInputs& with) const {
  return std::visit([&](const auto& d) { return d.hidden(ids, with); }, decoder);
}

Array CausalLM::logits(const Array& hidden) const {
  return std::visit([&](const auto& d) { return d.logits(hidden); }, decoder);
}

WeightedSum CausalLM::loss(const Array& ids, const Array& labels, const Array& weights, const TokenInputs& with) const {
  return std::visit([&](const auto& d) { return d.loss(ids, labels, weights, with); }, decoder);
}

Array CausalLM::decode(const Array& ids, DecoderCache& cache, const DecodeInputs& with) const {
  return std::visit([&](const auto& d) { return d.decode(ids, cache, with); }, decoder);
}

}  // namespace tessera::nn
