// parse_number: the number that a whole text says, or none.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace tessera::detail {

// As std::from_chars reads it, with a base behind the text if it is not 10; nothing may stand before or behind it.
template <class Number, class... Base>
std::optional<Number> parse_number(std::string_view text, Base... base) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, base...);
  return error == std::errc{} && rest == end ? std::optional(number) : std::nullopt;
}

}  // namespace tessera::detail
