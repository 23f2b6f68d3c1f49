// Samples of a trained decoder: what they contain, how the decoder writes them, and bytes of any kind as readable text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/nn/models.h>
#include <tessera/sharding/random.h>

namespace tessera::train {

struct SampleOptions {
  int64_t length = 0;         // how many bytes or tokens to add to the prompt
  std::string prompt = "\n";  // at least one byte
  std::string stop;           // the sample ends where it has this; empty: nowhere
  nn::SamplingOptions sampling = {.temperature = 0.8};
};

// Returns what nn::generate returns for one prompt, from a decoder that was trained on `window` positions: when they
// are full, the decoder reads the last half of them again, from position 0 on. Stopping criteria get all written
// tokens.
std::vector<int32_t> sample(const nn::CausalLM& model, const Key& key, const std::vector<int32_t>& prompt,
                            const nn::GenerateOptions& options, int64_t window);

// Valid UTF-8 and line breaks as they are; control characters and invalid bytes as \x1b, byte by byte.
std::string printable(std::string_view bytes);

}  // namespace tessera::train
