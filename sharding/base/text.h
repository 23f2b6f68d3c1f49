// Functions on texts: splitting, numbers, escaping of control characters, similar names.
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::detail {

// Views into the text: "a,b" -> a and b, "" -> one empty part.
inline std::vector<std::string_view> split_text(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  for (size_t end; (end = text.find(separator)) != std::string_view::npos; text.remove_prefix(end + separator.size()))
    parts.push_back(text.substr(0, end));
  parts.push_back(text);
  return parts;
}

// As std::from_chars reads it, with a base behind the text if it is not 10; nothing may stand before or behind it.
template <class Number, class... Base>
std::optional<Number> parse_number(std::string_view text, Base... base) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, base...);
  return error == std::errc{} && rest == end ? std::optional(number) : std::nullopt;
}

// Returns the text with every character that controls a terminal written as \u001b: characters below 0x20 except those
// in `kept`, 0x7f, U+0080 to U+009F, line separators and text directions (U+2028 to U+202E, U+2066 to U+2069). A second
// call changes nothing.
std::string escaped(std::string_view text, std::string_view kept = "\n\t");

// The Levenshtein distance: the least number of characters to insert, delete or replace.
size_t edit_distance(std::string_view a, std::string_view b);

// At most `most` of the names or paths in `among`, nearest first, equally near ones in their order; skips empty ones.
std::vector<std::string> closest_matches(std::string_view name, const std::vector<std::string>& among, size_t most = 3);

// "; "embed" is the nearest", if one is near; empty otherwise.
std::string nearest_words(std::string_view name, const std::vector<std::string>& among);

}  // namespace tessera::detail
