// Sampling: text from a trained decoder, byte by byte, and bytes of any kind as readable text.
#pragma once

#include <algorithm>
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
  int64_t window = 128;  // positions that the model was trained on
};

// The bytes as token ids (1, n).
Array ids_of(std::string_view bytes);

// The logits of the last position in `logits` (1, n, vocab), on the host.
std::vector<float> last_logits(const Array& logits);

// Valid UTF-8 and line breaks as they are; control characters and invalid bytes as \x1b, byte by byte.
std::string printable(std::string_view bytes);

// The bytes that follow the prompt, one decode each. Byte i depends on the key, i and the bytes before it. When the
// window is full, the cache is emptied, and the model reads the last half of the window again, from position 0 on.
template <class Model>
std::string sample(const Model& model, const Key& key, const SampleOptions& options) {
  std::string text = options.prompt;
  const auto last = [&](int64_t n) { return text.substr(text.size() - std::min(text.size(), static_cast<size_t>(n))); };
  nn::DecoderCache cache;
  std::string unread = last(options.window);
  const auto is_stopped = [&] {
    return !options.stop.empty() && text.find(options.stop, options.prompt.size()) != std::string::npos;
  };
  for (int64_t i = 0; i < options.length && !is_stopped(); ++i) {
    if (cache.length() + static_cast<int64_t>(unread.size()) > options.window) {
      cache = {};
      unread = last((options.window + 1) / 2);
    }
    const Array logits = model.decode(ids_of(unread), cache);
    unread = static_cast<char>(
        nn::sample_token(fold_in(key, static_cast<uint32_t>(i)), last_logits(logits), options.sampling));
    text += unread;
  }
  return text.substr(options.prompt.size());
}

}  // namespace tessera::train
