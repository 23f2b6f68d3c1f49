// CausalLM: a decoder of any family that the library has, chosen by its config.
#pragma once

#include <cstdint>
#include <utility>
#include <variant>

#include "nn/layers/lora.h"
#include "nn/models/gemma2.h"
#include "nn/models/gpt2.h"
#include "nn/models/llama.h"
#include "nn/models/mixtral.h"

namespace tessera::nn {

// The paths of its parameters are those of the decoder: layers.2.attn.q.kernel is decoder.layers.2.attn.q.kernel.
//   auto model = nn::filter_shard(nn::CausalLM::init(Key(0), {.vocab_size = 32000, .hidden_size = 512}), mesh_rules);
//   const Array logits = model(ids);
// Calls, errors and shapes: Decoder (nn/models/decoder.h).
struct CausalLM {
  std::variant<Llama, Gpt2, Gemma2, Mixtral> decoder;

  static CausalLM init(const Key& key, const DecoderConfig& config);

  const DecoderConfig& config() const {
    return std::visit([](const auto& d) -> const DecoderConfig& { return d.config; }, decoder);
  }
  void set_remat(bool on) {
    std::visit([&](auto& d) { d.remat = on; }, decoder);
  }
  // DecoderConfig::router_aux_loss_coef, for a model that goes on from a folder. Errors: those of `check`.
  void set_router_aux_loss_coef(double coefficient);
  Array hidden(const Array& ids, const TokenInputs& with = {}) const;
  Array logits(const Array& hidden) const;
  Array operator()(const Array& ids, const TokenInputs& with = {}) const { return logits(hidden(ids, with)); }
  WeightedSum loss(const Array& ids, const Array& labels, const Array& weights = {},
                   const TokenInputs& with = {}) const;
  Array decode(const Array& ids, DecoderCache& cache, const DecodeInputs& with = {}) const;
};

// The model with a low-rank change (nn/layers/lora.h) of every linear layer of its attention and its MLPs; experts, the
// embedding and the head have none. Train them with nn::by_path("**.lora.**"). merge_lora adds the changes to the
// kernels and removes them, as save_pretrained needs it. Errors: those of with_lora for a layer.
CausalLM with_lora(const Key& key, CausalLM model, const LoraOptions& options = {});
CausalLM merge_lora(CausalLM model);

}  // namespace tessera::nn
