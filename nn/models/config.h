// DecoderConfig: the sizes and options of a decoder. The fields have the names of the keys in Llama's config.json.
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

// The defaults describe a small Llama. `init` rejects options that the family does not support. Fields that have a key
// in a config.json of Hugging Face have its name, in all families; the other fields exist only here.
struct DecoderConfig {
  DecoderFamily family = DecoderFamily::llama;
  int64_t vocab_size = 256, hidden_size = 64, num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 4;
  int64_t head_dim = 16;
  int64_t intermediate_size = 176;         // hidden units of the MLP, or of each expert
  int64_t max_position_embeddings = 2048;  // in training; for gpt2 the rows of the position table, a hard limit
  double rms_norm_eps = 1e-6;              // of all norms; for gpt2 of its LayerNorms
  Activation hidden_act = {Activation::silu};
  RotaryEmbedding rope = {};                                           // of all but gpt2
  bool attention_bias = false, output_bias = false, mlp_bias = false;  // of q, k and v; of o; of the MLP
  bool tie_word_embeddings = false;                                    // whether the embedding is the head
  std::vector<int64_t> windows = {};                // of the attention of each layer, 0: none; empty: none at all
  std::optional<double> attention_scale = {};       // of the logits; 1 / sqrt(head_dim) unless given
  bool scale_attn_by_inverse_layer_idx = false;     // gpt2: logits of layer i are divided by i + 1 as well
  double attn_logit_softcapping = 0;                // gemma2: softcap of tessera::DotProductAttentionOptions; 0: none
  double final_logit_softcapping = 0;               // gemma2: c: logits become c tanh(logits / c); 0: none
  int64_t num_local_experts = 0;                    // mixtral
  int64_t num_experts_per_tok = 0;                  // mixtral
  double router_aux_loss_coef = 0;                  // mixtral: the part of the routers' balance loss in `loss`
  // The rows of the embedding and the columns of the head, if more than `vocab_size`: a fixed size that kernels prefer.
  // The additional rows are padding, which no result contains. 0: as many as `vocab_size`. For a mesh axis that does
  // not divide the vocabulary, use a rule with Uneven::pad instead: it changes no shape.
  int64_t vocab_rows = 0;
  DTypePolicy dtypes = {};

  // The rows of the embedding, with padding.
  int64_t padded_vocab_size() const { return vocab_rows ? vocab_rows : vocab_size; }
  // The attention window of a layer; 0 if it has none.
  int64_t sliding_window(int64_t layer) const { return windows.empty() ? 0 : windows[static_cast<size_t>(layer)]; }
};

// Errors (invalid_argument): a size below 1 or above 2^31, more than 10,000 layers or experts, a num_key_value_heads
// that does not divide num_attention_heads, another number of windows than layers, a vocab_rows below vocab_size, an
// option that another family has.
void check(const DecoderConfig& config);

}  // namespace tessera::nn
