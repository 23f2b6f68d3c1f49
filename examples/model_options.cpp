// The sizes of the command line as the configs of the models.
#include <algorithm>

#include "examples/train_options.h"

namespace tessera::examples {
namespace {

constexpr int64_t vocab = 256;  // bytes

int64_t default_kv_heads(int64_t heads) {
  int64_t kv_heads = std::max<int64_t>(1, heads / 4);
  while (heads % kv_heads) --kv_heads;
  return kv_heads;
}

}  // namespace

GptConfig ModelOptions::gpt() const {
  return {
      .vocab = vocab, .embed = embed, .heads = heads, .layers = layers, .seq = seq, .mlp = mlp > 0 ? mlp : 4 * embed};
}

LlamaConfig ModelOptions::llama() const {
  return {.vocab = vocab,
          .embed = embed,
          .heads = heads,
          .kv_heads = kv_heads > 0 ? kv_heads : default_kv_heads(heads),
          .layers = layers,
          .mlp = mlp > 0 ? mlp : (8 * embed / 3 + 31) / 32 * 32};
}

nn::DecoderConfig ModelOptions::decoder(int64_t vocab_size) const {
  const bool is_gpt = name == "gpt";
  return {.family = is_gpt ? nn::DecoderFamily::gpt2 : nn::DecoderFamily::llama,
          .vocab = vocab_size,
          .embed = embed,
          .layers = layers,
          .heads = heads,
          .kv_heads = is_gpt ? heads : llama().kv_heads,
          .head_dim = std::max<int64_t>(1, embed / heads),
          .mlp = is_gpt ? gpt().mlp : llama().mlp,
          .positions = seq,
          .eps = 1e-5,
          .activation = {is_gpt ? nn::Activation::gelu : nn::Activation::silu},
          .attention_bias = is_gpt,
          .output_bias = is_gpt,
          .mlp_bias = is_gpt,
          .tied = true};
}

}  // namespace tessera::examples
