// escaped: text from files and from other processes, as it may be shown on a terminal.
#pragma once

#include <string>
#include <string_view>

namespace tessera::detail {

// Returns the text with every character that controls a terminal written as \u001b: characters below 0x20 except those
// in `kept`, 0x7f, U+0080 to U+009F, line separators and text directions (U+2028 to U+202E, U+2066 to U+2069). A second
// call changes nothing.
std::string escaped(std::string_view text, std::string_view kept = "\n\t");

}  // namespace tessera::detail
