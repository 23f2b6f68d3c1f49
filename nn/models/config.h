// DecoderConfig: the sizes and options of a decoder, with the keys of Llama's config.json, and its reader and writer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nn/layers/activation.h"
#include "nn/layers/attention.h"
#include "nn/layers/init.h"

namespace tessera::nn {

enum class DecoderFamily { gpt2, llama, mistral, qwen2, qwen3, gemma2, mixtral };

// Returns Hugging Face's model_type: "qwen2".
std::string_view name_of(DecoderFamily family);

// Upper bounds of DecoderConfig: of all sizes, and of layers and experts, which are stored as separate objects.
constexpr int64_t max_decoder_size = int64_t{1} << 31, max_decoder_layers = 10'000;

// Sizes and options of a decoder. The defaults describe a small Llama. `init` rejects options that the family does not
// support. Fields that have a key in Hugging Face's config.json have its name, in all families. The other fields exist
// only here.
struct DecoderConfig {
  DecoderFamily family = DecoderFamily::llama;
  int64_t vocab_size = 256, hidden_size = 64, num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 4;
  int64_t head_dim = 16;
  int64_t intermediate_size = 176;         // hidden units of the MLP, or of each expert
  int64_t max_position_embeddings = 2048;  // in training; for gpt2 the rows of the position table, a hard limit
  double rms_norm_eps = 1e-6;              // eps of all norms; for gpt2 of its LayerNorms
  Activation hidden_act = {Activation::silu};
  RotaryEmbedding rope = {};                                           // not for gpt2
  bool attention_bias = false, output_bias = false, mlp_bias = false;  // biases of q, k and v; of o; of the MLP
  bool tie_word_embeddings = false;                                    // true if the head shares the embedding
  std::vector<int64_t> windows = {};                // attention window of each layer, 0: no window; empty: no windows
  std::optional<double> attention_scale = {};       // scale of the logits; default: 1 / sqrt(head_dim)
  bool scale_attn_by_inverse_layer_idx = false;     // gpt2: also divides the logits of layer i by i + 1
  double attn_logit_softcapping = 0;                // gemma2: softcap of tessera::DotProductAttentionOptions; 0: no cap
  double final_logit_softcapping = 0;               // gemma2: c: logits become c tanh(logits / c); 0: no cap
  int64_t num_local_experts = 0;                    // mixtral
  int64_t num_experts_per_tok = 0;                  // mixtral
  double router_aux_loss_coef = 0;                  // mixtral: the factor of the routers' balance loss in `loss`
  // Rows of the embedding and columns of the head, if more than `vocab_size`: a fixed size that kernels prefer. The
  // additional rows are padding and never affect results. 0: as many as `vocab_size`. For a mesh axis that does not
  // divide the vocabulary, use a rule with Uneven::pad instead: it changes no shape.
  int64_t vocab_rows = 0;
  DTypePolicy dtypes = {};

  // Returns the number of rows of the embedding, with padding.
  int64_t padded_vocab_size() const { return vocab_rows ? vocab_rows : vocab_size; }
  // Returns the attention window of a layer; 0 if it has none.
  int64_t sliding_window(int64_t layer) const { return windows.empty() ? 0 : windows[static_cast<size_t>(layer)]; }
};

// Checks a config.
// Errors (invalid_argument)
//   a size below 1 or above 2^31
//   more than 10,000 layers or experts
//   a num_key_value_heads that does not divide num_attention_heads
//   a different number of windows than layers
//   a vocab_rows below vocab_size
//   an option of another family
void check(const DecoderConfig& config);

// Reads Hugging Face's config.json, with either form of rotary positions: rope_parameters, or rope_theta and
// rope_scaling. `name` is the name of the text in errors.
// Errors (invalid_file)
//   malformed JSON
//   a key that is missing or has the wrong type
//   a value that selects a model which the library cannot compute: model_type, activation, rope_type,
//     option
DecoderConfig config_from_hugging_face(std::string_view json, std::string_view name);

// Returns a config.json that transformers reads; `dtype` is the element type of the weights. Error (invalid_argument):
// an option that transformers' config of the family cannot express.
std::string config_to_hugging_face(const DecoderConfig& config, DType dtype);

}  // namespace tessera::nn
