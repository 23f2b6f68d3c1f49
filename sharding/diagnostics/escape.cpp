// Control characters as \u001b.
#include "sharding/diagnostics/escape.h"

#include <fmt/format.h>

namespace tessera::detail {

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
    else
      safe += text[i];
  }
  return safe;
}

}  // namespace tessera::detail
