// Samples of a trained decoder: their options, their generation, and bytes of any kind as readable text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/nn/models.h>
#include <tessera/sharding/random.h>

namespace tessera::train {

struct SampleOptions {
  int64_t length = 0;         // number of bytes or tokens to add to the prompt
  std::string prompt = "\n";  // at least one byte
  std::string stop;           // the sample ends where it contains this; empty: nowhere
  nn::SamplingOptions sampling = {.temperature = 0.8};
};

// Returns the result of nn::generate for one prompt, for a decoder that was trained on `window` positions. When
// they are full, the decoder reads their last half again, from position 0 on. Stopping criteria get all generated
// tokens.
std::vector<int32_t> sample(const nn::CausalLM& model, const Key& key, const std::vector<int32_t>& prompt,
                            const nn::GenerateOptions& options, int64_t window);

// Returns valid UTF-8 and line breaks unchanged; control characters and invalid bytes as \x1b, byte by byte.
std::string printable(std::string_view bytes);

}  // namespace tessera::train
