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
#include "nn/layers/moe.h"

namespace tessera::nn {

// Upper bounds of DecoderConfig: of all sizes, and of layers and experts, for which `init` and files have separate
// objects. Llama 3 405B has 126 layers, Kimi K2 has 384 experts.
constexpr int64_t max_decoder_size = int64_t{1} << 31, max_decoder_layers = 10'000;
// Upper bound of head_dim; models have at most 576.
constexpr int64_t max_head_dim = int64_t{1} << 16;

enum class NormKind { rms, layer };

// The places of the norms in a block. DecoderLayer (nn/models/decoder_layer.h) has the formulas.
//   pre              the inputs of attention and MLP (Llama)
//   post             their outputs (OLMo 2)
//   both             inputs and outputs (Gemma 2)
//   parallel         both inputs, with attention and MLP of the same x (GPT-NeoX)
//   parallel_shared  as parallel, with one norm for both (Falcon, Cohere)
enum class NormPlacement { pre, post, both, parallel, parallel_shared };

// Sizes and options of a decoder. The defaults describe a small Llama. Options of different families can be combined;
// `check` rejects those that exclude each other. Fields have the names of the keys in Hugging Face's config.json, if
// there is one for several families.
struct DecoderConfig {
  // The family whose config.json and tensor names a folder has. Sets no option: config_of_family does.
  std::string model_type = "llama";
  int64_t vocab_size = 256, hidden_size = 64, num_hidden_layers = 2, num_attention_heads = 4, num_key_value_heads = 4;
  int64_t head_dim = 16;
  int64_t intermediate_size = 176;         // hidden units of the MLP, or of each expert
  int64_t max_position_embeddings = 2048;  // in training; with learned_positions a hard limit
  NormKind norm = NormKind::rms;
  NormPlacement norm_placement = NormPlacement::pre;
  double norm_offset = 0;          // of RMSNorm (nn/layers/norm.h): 1 for Gemma
  bool norm_bias = true;           // true if LayerNorms have a bias
  double rms_norm_eps = 1e-6;      // eps of all norms, also of LayerNorms
  bool qk_norm = false;            // RMSNorm of each head of q and k
  bool qk_norm_all_heads = false;  // with qk_norm: over the features of all heads together
  Activation hidden_act = {Activation::silu};
  bool gated_mlp = true;                           // GatedMlp instead of Mlp
  RotaryEmbedding rope = {};                       // unless learned_positions
  std::optional<RotaryEmbedding> local_rope = {};  // of the layers with a window; default: rope
  std::vector<int64_t> no_rope_layers = {};        // of each layer 1: rotary positions, 0: none; empty: all 1
  bool learned_positions = false;                  // a table of positions, added to the embedding of the tokens
  int64_t position_offset = 0;                     // the table's row of position 0: 2 for OPT
  bool attention_bias = false, output_bias = false, mlp_bias = false;  // biases of q, k and v; of o; of the MLP
  bool tie_word_embeddings = false;                                    // true if the head shares the embedding
  std::vector<int64_t> windows = {};             // attention window of each layer, 0: none; empty: no windows
  std::optional<double> attention_scale = {};    // scale of the attention's logits; default: 1 / sqrt(head_dim)
  bool scale_attn_by_inverse_layer_idx = false;  // also divides the attention's logits of layer i by i + 1
  double attn_logit_softcapping = 0;             // softcap of tessera::DotProductAttentionOptions; 0: no cap
  bool attention_sinks = false;                  // sinks of AttentionOptions (nn/layers/attention.h)
  bool qk_norm_after_rope = false;   // norm of each head of q and k without scale, in layers with rotary positions
  int64_t attention_chunk_size = 0;  // chunk of layers with rotary positions; 0: none
  std::optional<QueryTemperature> query_temperature = {};  // of layers without rotary positions
  // Sizes of LatentAttention (nn/layers/latent_attention.h), which replaces the other attention unless kv_lora_rank is
  // 0. A q_lora_rank of 0: the query is not compressed. head_dim is the number of rotated features of a head.
  int64_t kv_lora_rank = 0, q_lora_rank = 0, qk_nope_head_dim = 128, v_head_dim = 128;
  double final_logit_softcapping = 0;                        // c: logits become c tanh(logits / c); 0: no cap
  double embedding_multiplier = 1, residual_multiplier = 1;  // factors of the embedding, and of attention's and MLP's
                                                             // terms of the residual stream
  double logits_scaling = 1;                                 // the logits are divided by it
  int64_t num_local_experts = 0;                             // of each MLP; 0: MLPs without experts
  int64_t num_experts_per_tok = 0;
  std::vector<int64_t> moe_layers = {};             // of each layer 1: experts, 0: an MLP; empty: all 1
  int64_t moe_intermediate_size = 0;                // hidden units of each expert; 0: intermediate_size
  int64_t n_shared_experts = 0;                     // of each layer with experts, used by every token
  RouterScore router_score = RouterScore::softmax;  // this and the next fields as in MoeOptions (nn/layers/moe.h)
  bool norm_topk_prob = true;                       // normalize
  double routed_scaling_factor = 1;                 // scale
  int64_t n_group = 1, topk_group = 1;              // num_groups, top_k_groups
  bool has_balance_bias = false, scale_expert_inputs = false;
  bool expert_bias = false;  // router_bias and expert_bias
  std::optional<ClampedGate> clamped_gate = {};
  double router_aux_loss_coef = 0;  // the factor of the routers' balance loss in `loss`
  // Rows of the embedding and columns of the head, if more than `vocab_size`: a fixed size that kernels prefer. The
  // additional rows are padding and never affect results. 0: as many as `vocab_size`. For a mesh axis that does not
  // divide the vocabulary, use a rule with Uneven::pad instead: it changes no shape.
  int64_t vocab_rows = 0;
  DTypePolicy dtypes = {};

  // Returns the number of rows of the embedding, with padding.
  int64_t padded_vocab_size() const { return vocab_rows ? vocab_rows : vocab_size; }
  // Returns the attention window of a layer; 0 if it has none.
  int64_t sliding_window(int64_t layer) const { return windows.empty() ? 0 : windows[static_cast<size_t>(layer)]; }
  // Returns whether a layer has experts.
  bool has_experts(int64_t layer) const {
    return num_local_experts && (moe_layers.empty() || moe_layers[static_cast<size_t>(layer)]);
  }
  // Returns the rotary positions of a layer; nullopt if it has none.
  std::optional<RotaryEmbedding> rope_of(int64_t layer) const;
  // Returns the scale of the attention's logits before scale_attn_by_inverse_layer_idx.
  double scale_of_attention() const;
};

// Returns the config that a family has by default for the given sizes: vocab_size, hidden_size, num_hidden_layers,
// num_attention_heads, num_key_value_heads, head_dim, intermediate_size, max_position_embeddings, num_local_experts,
// num_experts_per_tok, vocab_rows and dtypes. Set other fields in the result:
//   nn::DecoderConfig config = nn::config_of_family("qwen3", {.vocab_size = 32000, .hidden_size = 512});
//   config.tie_word_embeddings = true;
// Errors (invalid_argument): an unknown model_type, sizes that `check` rejects, or another field in `sizes`.
DecoderConfig config_of_family(std::string_view model_type, const DecoderConfig& sizes);

// Checks a config.
// Errors (invalid_argument)
//   a size below 1 or above 2^31; a head_dim above 2^16
//   more than 10,000 layers or experts
//   a num_key_value_heads that does not divide num_attention_heads
//   a different number of windows or no_rope_layers than layers
//   a vocab_rows below vocab_size
//   options that exclude each other, such as learned and rotary positions
void check(const DecoderConfig& config);

// Reads Hugging Face's config.json, with either form of rotary positions: rope_parameters, or rope_theta and
// rope_scaling. `name` is the name of the text in errors.
// Errors (invalid_file)
//   malformed JSON
//   a key that is missing or has the wrong type
//   an unsupported model_type, activation, rope_type or other option
DecoderConfig config_from_hugging_face(std::string_view json, std::string_view name);

// Returns a config.json that transformers reads; `dtype` is the element type of the weights. Error (invalid_argument):
// an option that transformers' config of the family cannot express.
std::string config_to_hugging_face(const DecoderConfig& config, DType dtype);

}  // namespace tessera::nn
