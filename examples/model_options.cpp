// The sizes of the command line as the configs of the models.
#include <algorithm>

#include "examples/train_options.h"

namespace tessera::examples {
namespace {

int64_t default_kv_heads(int64_t heads) {
  int64_t kv_heads = std::max<int64_t>(1, heads / 4);
  while (heads % kv_heads) --kv_heads;
  return kv_heads;
}

}  // namespace

nn::DecoderConfig ModelOptions::decoder(int64_t vocab_size, bool is_of_bytes) const {
  const bool is_gpt = name == "gpt", is_mixtral = name == "mixtral";
  const nn::DecoderFamily not_gpt = is_mixtral ? nn::DecoderFamily::mixtral : nn::DecoderFamily::llama;
  return {.family = is_gpt ? nn::DecoderFamily::gpt2 : not_gpt,
          .vocab_size = vocab_size,
          .hidden_size = embed,
          .num_hidden_layers = layers,
          .num_attention_heads = heads,
          .num_key_value_heads = is_gpt         ? heads
                                 : kv_heads > 0 ? kv_heads
                                                : default_kv_heads(heads),
          .head_dim = embed / heads,
          .intermediate_size = mlp > 0  ? mlp
                               : is_gpt ? 4 * embed
                                        : (8 * embed / 3 + 31) / 32 * 32,
          .max_position_embeddings = seq,
          .rms_norm_eps = 1e-5,
          .hidden_act = {is_gpt ? nn::Activation::gelu : nn::Activation::silu},
          .attention_bias = is_gpt,
          .output_bias = is_gpt,
          .mlp_bias = is_gpt,
          .tie_word_embeddings = !(is_gpt && is_of_bytes),
          .num_local_experts = is_mixtral ? experts : 0,
          .num_experts_per_tok = is_mixtral ? 2 : 0};
}

}  // namespace tessera::examples
