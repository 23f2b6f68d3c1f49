// escaped: text from files and from other processes, as it may be shown on a terminal.
#pragma once

#include <string>
#include <string_view>

namespace tessera::detail {

// The text with its control characters written out, since a terminal obeys them: below 0x20 except those in `kept`,
// 0x7f, and U+0080 to U+009F. ESC becomes the six characters \u001b. Applied twice, it changes nothing more.
std::string escaped(std::string_view text, std::string_view kept = "\n\t");

}  // namespace tessera::detail
