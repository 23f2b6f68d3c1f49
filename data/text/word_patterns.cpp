// The words of GPT-2, GPT-4, GPT-4o and related tokenizers.
#include "data/text/word_patterns.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "data/text/character_classes.h"
#include "data/text/unicode_text.h"

namespace tessera::data::detail {
namespace {

// The classes of the expressions, as bits.
enum Kind : unsigned {
  letter = 1,      // \p{L}
  number = 2,      // \p{N}
  space = 4,       // \s
  other = 8,       // [^\s\p{L}\p{N}]
  newline = 16,    // [\r\n]
  slash = 32,      // /
  not_lower = 64,  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  not_upper = 128  // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
};

unsigned kinds_of(char32_t c) {
  constexpr CategorySet lower("Ll"), upper = CategorySet("Lu") | CategorySet("Lt"), marks("M");
  const bool is_cased = is_letter(c) || marks.contains(c);
  return (is_letter(c)        ? letter
          : is_number(c)      ? number
          : is_white_space(c) ? space
                              : other) |
         (is_cased && !lower.contains(c) ? unsigned{not_lower} : 0) |
         (is_cased && !upper.contains(c) ? unsigned{not_upper} : 0);
}

constexpr std::array<uint8_t, 128> ascii_kinds = [] {
  std::array<uint8_t, 128> made;
  made.fill(other);
  for (const unsigned char c : {' ', '\t', '\v', '\f'}) made[c] = space;
  for (const unsigned char c : {'\r', '\n'}) made[c] = space | newline;
  for (unsigned char c = '0'; c <= '9'; ++c) made[c] = number;
  for (unsigned char c = 'A'; c <= 'Z'; ++c) made[c] = letter | not_lower;
  for (unsigned char c = 'a'; c <= 'z'; ++c) made[c] = letter | not_upper;
  made['/'] |= slash;
  return made;
}();

unsigned kinds_at(std::string_view text, size_t place) {
  const auto byte = static_cast<unsigned char>(text[place]);
  return byte < ascii_kinds.size() ? ascii_kinds[byte] : kinds_of(character_at(text, place));
}

// Returns the kinds of the character at `place`; 0 at the end of the text.
unsigned kinds_or_end(std::string_view text, size_t place) { return place < text.size() ? kinds_at(text, place) : 0; }

// Returns the end of the characters of a kind from `begin` on, of at most `most` of them.
size_t after(std::string_view text, size_t begin, unsigned kinds, size_t most = SIZE_MAX) {
  for (; most > 0 && begin < text.size() && (kinds_at(text, begin) & kinds); --most)
    begin += character_bytes(text[begin]);
  return begin;
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d), or without (?i:). Returns `begin` if there is no match.
size_t after_contraction(std::string_view text, size_t begin, bool ignores_case) {
  if (!text.substr(begin).starts_with('\'')) return begin;
  const auto at = [&](size_t i) {
    const char c = begin + i < text.size() ? text[begin + i] : '\0';
    return ignores_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = at(1), second = at(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return begin + 2;
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l'))
    return begin + 3;
  constexpr std::string_view long_s = "\u017F";  // the other character whose lower case is s
  return ignores_case && text.substr(begin + 1).starts_with(long_s) ? begin + 1 + long_s.size() : begin;
}

// \s+(?!\S)|\s+: the last character of white space belongs to the word behind it, unless it is alone.
size_t after_spaces(std::string_view text, size_t begin) {
  const size_t end = after(text, begin, space);
  const size_t last = character_before(text, end);
  return end == text.size() || last == begin ? end : last;
}

}  // namespace

size_t gpt2_word_end(std::string_view text, size_t begin) {
  if (const size_t end = after_contraction(text, begin, false); end > begin) return end;
  const size_t first = begin + (text[begin] == ' ');
  if (const unsigned kinds = kinds_or_end(text, first) & (letter | number | other)) return after(text, first, kinds);
  return after_spaces(text, begin);
}

namespace {

// Returns where the letters of a word begin if it begins with [^\r\n\p{L}\p{N}].
size_t after_mark(std::string_view text, size_t begin) {
  return after(text, begin, space | other, kinds_at(text, begin) & newline ? 0 : 1);
}

// (?i:'s|...)|[^\r\n\p{L}\p{N}]?\p{L}+
size_t after_letters(std::string_view text, size_t begin) {
  if (const size_t end = after_contraction(text, begin, true); end > begin) return end;
  const size_t first = after_mark(text, begin), end = after(text, first, letter);
  return end > first ? end : begin;
}

// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+, or the same with + and *. Returns `begin` if there is no
// match.
size_t after_cased(std::string_view text, size_t begin, bool has_lower) {
  size_t middle = after(text, begin, not_lower);
  const size_t end = after(text, middle, not_upper);
  if (!has_lower) return middle > begin ? end : begin;
  if (end > middle) return end;
  for (size_t last; middle > begin; middle = last) {
    last = character_before(text, middle);
    if (kinds_at(text, last) & not_upper) return middle;
  }
  return begin;
}

// [^\r\n\p{L}\p{N}]?...(?i:'s|...)?, first with has_lower, then without.
size_t after_cased_letters(std::string_view text, size_t begin) {
  for (const bool has_lower : {true, false})
    for (const size_t first : {after_mark(text, begin), begin})
      if (const size_t end = after_cased(text, first, has_lower); end > first)
        return after_contraction(text, end, true);
  return begin;
}

// letters|\p{N}{1,digits}| ?[^\s\p{L}\p{N}]+[tail]*|\s*[\r\n]+|\s+(?!\S)|\s+
template <size_t (*letters)(std::string_view, size_t), size_t digits, unsigned tail>
size_t word_end(std::string_view text, size_t begin) {
  if (const size_t end = letters(text, begin); end > begin) return end;
  if (const size_t end = after(text, begin, number, digits); end > begin) return end;
  const size_t first = begin + (text[begin] == ' ');
  if (kinds_or_end(text, first) & other) return after(text, after(text, first, other), tail);
  for (size_t end = after(text, begin, space); end > begin; --end)
    if (text[end - 1] == '\r' || text[end - 1] == '\n') return end;
  return after_spaces(text, begin);
}

constexpr std::pair<std::string_view, WordEnd> known[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", gpt2_word_end},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
     word_end<after_letters, 3, newline>},  // Llama 3
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
     R"(\s*[\r\n]+|\s+(?!\S)|\s+)",
     word_end<after_letters, 1, newline>},  // Qwen 2
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
     R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     word_end<after_cased_letters, 3, newline | slash>}};  // GPT-4o

}  // namespace

WordEnd word_end_of(std::string_view pattern) {
  const auto* found =
      std::find_if(std::begin(known), std::end(known), [&](const auto& k) { return k.first == pattern; });
  return found == std::end(known) ? nullptr : found->second;
}

}  // namespace tessera::data::detail
