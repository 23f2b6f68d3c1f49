// CausalLM: a decoder of any supported family, chosen by its config.
#pragma once

#include <variant>

#include "nn/layers/linear.h"
#include "nn/models/gpt2.h"
#include "nn/models/llama.h"

namespace tessera::nn {

// Holds a decoder of any family. Its parameter paths are the decoder's: layers.2.attn.q.kernel is
// decoder.layers.2.attn.q.kernel. Calls, errors and shapes: Decoder (nn/models/decoder.h).
//   auto model = nn::filter_shard(nn::CausalLM::init(Key(0), {.vocab_size = 32000, .hidden_size = 512}), mesh_rules);
//   const Array logits = model(ids);
struct CausalLM {
  std::variant<Llama, Gpt2, Gemma2, Mixtral> decoder;

  static CausalLM init(const Key& key, const DecoderConfig& config);

  const DecoderConfig& config() const {
    return std::visit([](const auto& d) -> const DecoderConfig& { return d.config; }, decoder);
  }
  void set_remat(bool on) {
    std::visit([&](auto& d) { d.remat = on; }, decoder);
  }
  // Sets DecoderConfig::router_aux_loss_coef, for a model that is loaded from a folder. Errors: those of `check`.
  void set_router_aux_loss_coef(double coefficient);
  Array hidden(const Array& ids, const TokenInputs& with = {}) const;
  Array logits(const Array& hidden) const;
  Array operator()(const Array& ids, const TokenInputs& with = {}) const { return logits(hidden(ids, with)); }
  WeightedSum loss(const Array& ids, const Array& labels, const Array& weights = {},
                   const TokenInputs& with = {}) const;
  Array decode(const Array& ids, DecoderCache& cache, const DecodeInputs& with = {}) const;
};

// Returns the model with a LoRA adapter (nn/layers/linear.h) for every linear layer of its attention and its MLPs.
// Experts, the embedding and the head have none. Train the adapters with nn::by_path("**.lora.**"). merge_lora adds the
// adapters to the kernels and removes them, which save_pretrained requires. Errors: those of with_lora for a layer.
CausalLM with_lora(const Key& key, CausalLM model, const LoraOptions& options = {});
CausalLM merge_lora(CausalLM model);

}  // namespace tessera::nn
