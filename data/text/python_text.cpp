// White space, splitting, replacing and JSON strings as in Python.
#include "data/text/python_text.h"

#include <fmt/format.h>

#include "data/text/unicode_text.h"

namespace tessera::data::jinja {
namespace {

// str.isspace of one character, in Unicode 15: bidirectional types WS, B and S, and the category Zs.
bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

std::string_view first_character(std::string_view text) { return text.substr(0, detail::character_bytes(text[0])); }

}  // namespace

std::string_view stripped(std::string_view text, std::optional<std::string_view> dropped, bool left, bool right) {
  const auto drops = [&](std::string_view c) {
    return dropped ? dropped->find(c) != std::string_view::npos : is_space(detail::character_at(c, 0));
  };
  while (left && !text.empty() && drops(first_character(text))) text.remove_prefix(first_character(text).size());
  while (right && !text.empty()) {
    const size_t last = detail::character_before(text, text.size());
    if (!drops(text.substr(last))) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

std::vector<std::string_view> split(std::string_view text, std::optional<std::string_view> separator, int64_t most) {
  std::vector<std::string_view> parts;
  const auto has_more = [&] { return most < 0 || std::ssize(parts) < most; };
  if (separator) {
    for (size_t end; has_more() && (end = text.find(*separator)) != std::string_view::npos;
         text.remove_prefix(end + separator->size()))
      parts.push_back(text.substr(0, end));
    parts.push_back(text);
    return parts;
  }
  while (!(text = stripped(text, std::nullopt, true, false)).empty()) {
    size_t end = 0;
    while (end < text.size() && (!has_more() || !is_space(detail::character_at(text, end))))
      end += detail::character_bytes(text[end]);
    parts.push_back(has_more() ? text.substr(0, end) : text);
    text.remove_prefix(end);
  }
  return parts;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to, int64_t most) {
  std::string result;
  for (size_t end; most != 0 && (end = text.find(from)) != std::string_view::npos; --most) {
    result.append(text.substr(0, end)).append(to);
    text.remove_prefix(end + from.size());
  }
  return result.append(text);
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> all;
  for (; !text.empty(); text.remove_prefix(all.back().size())) all.push_back(first_character(text));
  return all;
}

std::string json_string(std::string_view text) {
  constexpr std::string_view named = "\"\\\b\f\n\r\t", letters = "\"\\bfnrt";
  std::string result = "\"";
  for (const char c : text)
    if (const size_t which = named.find(c); which != std::string_view::npos)
      result += {'\\', letters[which]};
    else if (static_cast<unsigned char>(c) < 0x20)
      result += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      result += c;
  return result + '"';
}

}  // namespace tessera::data::jinja
