// escaped: text from files and from other processes, as it may be shown on a terminal.
#pragma once

#include <string>
#include <string_view>

namespace tessera::detail {

// The text with what terminals obey written out, as \u001b: below 0x20 except those in `kept`, 0x7f, U+0080 to U+009F,
// and what ends lines or turns text (U+2028 to U+202E, U+2066 to U+2069). Applied twice, it changes nothing more.
std::string escaped(std::string_view text, std::string_view kept = "\n\t");

}  // namespace tessera::detail
