// Control characters as \u001b.
#include "sharding/base/escape.h"

#include <fmt/format.h>

namespace tessera::detail {
namespace {

// Whether UTF-8 begins with U+2028 to U+202E or U+2066 to U+2069, of three bytes each.
bool is_line_or_direction(std::string_view text) {
  const auto last = static_cast<unsigned char>(text.size() < 3 ? 0 : text[2]);
  return (text.starts_with("\xe2\x80") && last >= 0xa8 && last <= 0xae) ||
         (text.starts_with("\xe2\x81") && last >= 0xa6 && last <= 0xa9);
}

}  // namespace

std::string escaped(std::string_view text, std::string_view kept) {
  std::string safe;
  safe.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (byte == 0xc2 && next >= 0x80 && next < 0xa0)  // UTF-8 of U+0080 to U+009F
      safe += fmt::format("\\u{:04x}", next), ++i;
    else if ((byte < 0x20 && kept.find(text[i]) == kept.npos) || byte == 0x7f)
      safe += fmt::format("\\u{:04x}", byte);
    else if (byte == 0xe2 && is_line_or_direction(text.substr(i)))
      safe += fmt::format("\\u20{:02x}", (next & 1) << 6 | (text[i + 2] & 0x3f)), i += 2;
    else
      safe += text[i];
  }
  return safe;
}

}  // namespace tessera::detail
