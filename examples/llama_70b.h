// llama_70b: the sizes of Llama 2 and 3's largest shape, of which forecasts and placement tables are made.
#pragma once

#include "nn/models.h"

namespace tessera::examples {

inline nn::DecoderConfig llama_70b() {
  return {.vocab = 128256,
          .embed = 8192,
          .layers = 80,
          .heads = 64,
          .kv_heads = 8,
          .head_dim = 128,
          .mlp = 28672,
          .tied = true};
}

}  // namespace tessera::examples
