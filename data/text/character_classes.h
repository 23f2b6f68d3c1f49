// Classes of characters in Unicode 16, the version of the regular expressions in `tokenizers` 0.23.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::data::detail {

// The general categories in the order of their indices, two letters each.
inline constexpr std::string_view category_names = "CcCfCnCoCsLlLmLoLtLuMcMeMnNdNlNoPcPdPePfPiPoPsScSkSmSoZlZpZs";
constexpr size_t num_code_points = 0x110000;

// Returns the index of the category of each code point.
const std::vector<uint8_t>& categories();

// A set of general categories.
class CategorySet {
 public:
  // The categories whose names begin with `prefix`: "L" for all letters, "Lu" for upper-case letters.
  constexpr explicit CategorySet(std::string_view prefix) {
    for (size_t i = 0; i < category_names.size(); i += 2)
      if (category_names.substr(i).starts_with(prefix)) bits_ |= uint32_t{1} << i / 2;
  }
  bool contains(char32_t c) const { return (bits_ >> categories()[c] & 1) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  std::vector<std::pair<char32_t, char32_t>> ranges() const;  // first and last code points, in order
  constexpr CategorySet operator|(CategorySet other) const {
    other.bits_ |= bits_;
    return other;
  }

 private:
  uint32_t bits_ = 0;
};

// \p{L}
inline bool is_letter(char32_t c) {
  constexpr CategorySet letters("L");
  return c < 0x80 ? (c | 0x20) - U'a' < 26 : letters.contains(c);
}
// \p{N}
inline bool is_number(char32_t c) {
  constexpr CategorySet numbers("N");
  return c < 0x80 ? c - U'0' < 10 : numbers.contains(c);
}
// \s: the property White_Space.
inline bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || c - U'\t' < 5;
  return c == 0x85 || c == 0xA0 || c == 0x1680 || c - 0x2000 <= 10 || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}
// \w of Rust: a letter, mark, decimal digit, connector, or another character that is Alphabetic or a Join_Control.
bool is_word_character(char32_t c);

}  // namespace tessera::data::detail
