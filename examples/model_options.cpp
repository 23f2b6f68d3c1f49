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

GptConfig ModelOptions::gpt() const {
  return {.vocab = byte_values,
          .embed = embed,
          .heads = heads,
          .layers = layers,
          .seq = seq,
          .mlp = mlp > 0 ? mlp : 4 * embed};
}

nn::DecoderConfig ModelOptions::decoder(int64_t vocab_size) const {
  const bool is_gpt = name == "gpt", is_mixtral = name == "mixtral";
  const nn::DecoderFamily not_gpt = is_mixtral ? nn::DecoderFamily::mixtral : nn::DecoderFamily::llama;
  return {.family = is_gpt ? nn::DecoderFamily::gpt2 : not_gpt,
          .vocab = vocab_size,
          .embed = embed,
          .layers = layers,
          .heads = heads,
          .kv_heads = is_gpt         ? heads
                      : kv_heads > 0 ? kv_heads
                                     : default_kv_heads(heads),
          .head_dim = embed / heads,
          .mlp = mlp > 0  ? mlp
                 : is_gpt ? 4 * embed
                          : (8 * embed / 3 + 31) / 32 * 32,
          .positions = seq,
          .eps = 1e-5,
          .activation = {is_gpt ? nn::Activation::gelu : nn::Activation::silu},
          .attention_bias = is_gpt,
          .output_bias = is_gpt,
          .mlp_bias = is_gpt,
          .tied = true,
          .experts = is_mixtral ? experts : 0,
          .experts_per_token = is_mixtral ? 2 : 0};
}

}  // namespace tessera::examples
