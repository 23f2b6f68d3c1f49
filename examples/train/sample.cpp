// Draws on the host, and tells characters from stray bytes.
#include "examples/train/sample.h"

#include <fmt/format.h>

#include <tessera/sharding/placement.h>
#include <tessera/sharding/random.h>

namespace tessera::train {
namespace {

unsigned byte_at(std::string_view bytes, size_t i) { return static_cast<unsigned char>(bytes[i]); }

// How many bytes the printable character at the front takes; 0 if there is none.
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
  constexpr uint32_t least[] = {0, 0, 0xa0, 0x800, 0x10000};  // of two bytes: behind the control characters
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  return code >= least[length] && code <= 0x10ffff && !surrogate ? length : 0;
}

}  // namespace

Array ids_of(std::string_view bytes) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < bytes.size(); ++i) ids.push_back(static_cast<int32_t>(byte_at(bytes, i)));
  return array<int32_t>(ids, {1, static_cast<int64_t>(ids.size())});
}

std::vector<float> last_logits(const Array& logits) {
  const std::vector<float> all = gather(logits).to_host<float>();
  return {all.end() - logits.shape(-1), all.end()};
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
