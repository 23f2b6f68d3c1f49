// Generates text window by window, and escapes stray bytes.
#include "examples/train/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <span>

namespace tessera::train {
namespace {

unsigned byte_at(std::string_view bytes, size_t i) { return static_cast<unsigned char>(bytes[i]); }

// Returns the number of bytes of the printable character at the front; 0 if there is none.
size_t character_length(std::string_view bytes) {
  const unsigned first = byte_at(bytes, 0);
  if (first < 0x80) return (first >= 0x20 && first != 0x7f) || first == '\n' || first == '\t';
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc0 || first >= 0xf8 || bytes.size() < length) return 0;
  uint32_t code = first & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if (byte_at(bytes, i) >> 6 != 2) return 0;
    code = code << 6 | (byte_at(bytes, i) & 0x3f);
  }
  constexpr uint32_t least[] = {0, 0, 0xa0, 0x800, 0x10000};  // for two bytes: after the control characters
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return code >= least[length] && code <= 0x10ffff && !surrogate ? length : 0;
}

}  // namespace

std::vector<int32_t> sample(const nn::CausalLM& model, const Key& key, const std::vector<int32_t>& prompt,
                            const nn::GenerateOptions& options, int64_t window) {
  std::vector<int32_t> text = prompt, written;
  const auto is_stopped = [&](std::span<const int32_t> more) {
    if (!options.stopping_criteria) return false;
    std::vector<int32_t> all = written;
    all.insert(all.end(), more.begin(), more.end());
    return options.stopping_criteria(all);
  };
  for (uint32_t part = 0; std::ssize(written) < options.max_new_tokens; ++part) {
    const int64_t read = std::min(std::ssize(text), part ? (window + 1) / 2 : window);
    nn::GenerateOptions some = options;
    some.max_new_tokens = std::min(options.max_new_tokens - std::ssize(written), window - read + 1);
    some.stopping_criteria = is_stopped;
    const Key of_part = part ? fold_in(key, part) : key;
    const std::vector<int32_t> more = nn::generate(model, of_part, {{text.end() - read, text.end()}}, some)[0];
    text.insert(text.end(), more.begin(), more.end());
    written.insert(written.end(), more.begin(), more.end());
    const auto& ends = options.eos_token_id;
    if (is_stopped({}) || std::find(ends.begin(), ends.end(), written.back()) != ends.end()) break;
  }
  return written;
}

std::string printable(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const size_t length = character_length(bytes);
    text += length ? std::string(bytes.substr(0, length)) : fmt::format("\\x{:02x}", byte_at(bytes, 0));
    bytes.remove_prefix(std::max<size_t>(length, 1));
  }
  return text;
}

}  // namespace tessera::train
