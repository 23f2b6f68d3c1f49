// DecoderConfig: the sizes and options of a decoder, under one name each for all families.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "nn/layers/activation.h"
#include "nn/layers/attention.h"
#include "nn/layers/dtype_policy.h"

namespace tessera::nn {

enum class DecoderFamily { gpt2, llama, mistral, qwen2, qwen3, gemma2, mixtral };

// As Hugging Face's model_type: "qwen2".
std::string_view name_of(DecoderFamily family);

// Bounds of DecoderConfig: of all sizes, and of layers and experts, of which there are objects.
constexpr int64_t max_decoder_size = int64_t{1} << 31, max_decoder_layers = 10'000;

// The defaults are those of a small Llama. What a family has not is refused by its init: no option is ignored.
struct DecoderConfig {
  DecoderFamily family = DecoderFamily::llama;
  int64_t vocab = 256, embed = 64, layers = 2, heads = 4, kv_heads = 4;
  int64_t head_dim = 16;
  int64_t mlp = 176;         // hidden units, of each expert too
  int64_t positions = 2048;  // of training; of gpt2 the rows of the table of positions, beyond which it cannot read
  double eps = 1e-6;         // of the norms
  Activation activation = {Activation::silu};
  RotaryEmbedding rope = {};                                           // of all but gpt2
  bool attention_bias = false, output_bias = false, mlp_bias = false;  // of q, k and v; of o; of the MLP
  bool tied = false;                                                   // whether the embedding is the head
  std::vector<int64_t> windows = {};                // of the attention of each layer, 0: none; empty: none at all
  std::optional<double> attention_scale = {};       // of the logits; 1 / sqrt(head_dim) unless given
  bool scale_by_layer = false;                      // gpt2: logits of layer i are divided by i + 1 as well
  double attention_softcap = 0, logit_softcap = 0;  // gemma2: see tessera::AttentionOptions
  int64_t experts = 0, experts_per_token = 0;       // mixtral
  double router_aux_loss_coef = 0;                  // mixtral: the part of the routers' balance loss in `loss`
  // The rows of the embedding and the columns of the head, if more than `vocab`: a fixed size that kernels prefer. The
  // additional rows are padding, which no result contains. 0: as many as `vocab`. For a mesh axis that does not divide
  // the vocabulary, use a rule with Uneven::pad instead: it changes no shape.
  int64_t vocab_rows = 0;
  DTypePolicy dtypes = {};

  int64_t rows() const { return vocab_rows ? vocab_rows : vocab; }
  int64_t window(int64_t layer) const { return windows.empty() ? 0 : windows[static_cast<size_t>(layer)]; }
};

// Errors (invalid_argument): a size below 1 or above 2^31, more than 10,000 layers or experts, heads that kv_heads does not
// divide, another number of windows than layers, fewer rows than vocab, an option that another family has.
void check(const DecoderConfig& config);

}  // namespace tessera::nn
