// CausalLm passes each call on to its decoder.
#include "nn/models/causal_lm.h"

namespace tessera::nn {

CausalLm CausalLm::init(const Key& key, const DecoderConfig& config) {
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

Array CausalLm::hidden(const Array& ids, const TokenInputs& with) const {
  return std::visit([&](const auto& d) { return d.hidden(ids, with); }, decoder);
}

Array CausalLm::logits(const Array& hidden) const {
  return std::visit([&](const auto& d) { return d.logits(hidden); }, decoder);
}

Array CausalLm::decode(const Array& ids, DecoderCache& cache, const DecodeInputs& with) const {
  return std::visit([&](const auto& d) { return d.decode(ids, cache, with); }, decoder);
}

}  // namespace tessera::nn
