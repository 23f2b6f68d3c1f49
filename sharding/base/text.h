// Text functions: splitting, first lines, numbers, escaping of control characters, similar names, and path patterns.
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::detail {

// Returns views into the text: "a,b" gives a and b, "" gives one empty part.
inline std::vector<std::string_view> split_text(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  for (size_t end; (end = text.find(separator)) != std::string_view::npos; text.remove_prefix(end + separator.size()))
    parts.push_back(text.substr(0, end));
  parts.push_back(text);
  return parts;
}

// Returns a view of the text's first line. LibTorch's messages end with a stack trace.
inline std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

// Parses a number with std::from_chars; `base` follows the text if it is not 10. Returns std::nullopt unless the whole
// text is the number.
template <class Number, class... Base>
std::optional<Number> parse_number(std::string_view text, Base... base) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, base...);
  return error == std::errc{} && rest == end ? std::optional(number) : std::nullopt;
}

// Returns the text with each character that controls a terminal written as \u001b. These are characters below 0x20
// except those in `kept`, 0x7f, U+0080 to U+009F and their bytes outside of UTF-8, line separators and text directions
// (U+061C, U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069). A second call changes nothing.
std::string escaped(std::string_view text, std::string_view kept = "\n\t");

// Returns the Levenshtein distance: the minimum number of characters to insert, delete or replace.
size_t edit_distance(std::string_view a, std::string_view b);

// Returns at most `most` of the names or paths in `among`, closest first, ties in their order. Skips empty ones.
std::vector<std::string> closest_matches(std::string_view name, const std::vector<std::string>& among, size_t most = 3);

// Returns "; "embed" is the nearest" if a name is close; empty otherwise.
std::string nearest_words(std::string_view name, const std::vector<std::string>& among);

}  // namespace tessera::detail

namespace tessera {

// Returns whether the dotted path of a tree matches the pattern of a rule or a filter. `*` matches any part of one
// name, `**` any number of whole names:
//   layers.*.mlp.**    layers.0.mlp.up.kernel, layers.12.mlp.down.bias
//   **.bias            bias, head.bias, layers.0.attn.q.bias
//   layers.*.norm*     layers.0.norm1, not layers.0.norm1.scale
//   head               the leaf head, not paths below it: head.** matches those, and head as well
bool path_matches(std::string_view path, std::string_view pattern);

}  // namespace tessera
