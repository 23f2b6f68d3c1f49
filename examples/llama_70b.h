// llama_70b: the sizes of Llama 2 and 3's largest shape, of which forecasts and placement tables are made.
#pragma once

#include <tessera/nn/models.h>

namespace tessera::examples {

inline nn::DecoderConfig llama_70b() {
  return {.vocab_size = 128256,
          .hidden_size = 8192,
          .num_hidden_layers = 80,
          .num_attention_heads = 64,
          .num_key_value_heads = 8,
          .head_dim = 128,
          .intermediate_size = 28672,
          .tie_word_embeddings = true};
}

}  // namespace tessera::examples
