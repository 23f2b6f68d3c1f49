// The words of known expressions are the matches of a regular expression engine.
#include "data/text/word_patterns.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "data/text/character_classes.h"
#include "data/text/unicode_text.h"
#include "tests/data/skip_without.h"

namespace tessera::data::detail {
namespace {

constexpr std::array<const char*, 4> patterns = {
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};

// Characters of all kinds that the expressions distinguish, ASCII first. U+017F is s in lower case.
constexpr std::u32string_view kinds =
    U"' \n\r\tsStrevlLmdABb12/!.\u017F\u00A0\u2028\u3000\u0085\u0300\u02B0\u01C5\u4E00\u00E9\u00C9\u0660\u2167\u00B2"
    U"\U0001F600\u200D\u0903\u20DD\u1E9E\u212A\uE000\U00010400";
constexpr size_t ascii_kinds = kinds.find(U'\u017F');

void append(std::string& text, char32_t c) {
  if (c < 0x80) return text.push_back(static_cast<char>(c));
  const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  text += static_cast<char>(0xFF00 >> (more + 1) | c >> 6 * more);
  for (int i = more - 1; i >= 0; --i) text += static_cast<char>(0x80 | (c >> 6 * i & 0x3F));
}

std::string random_text(std::mt19937& random, bool is_ascii, bool has_any) {
  constexpr CategorySet unassigned("Cn"), surrogates("Cs");
  std::string text;
  for (size_t i = random() % 600; i > 0; --i) {
    char32_t c = kinds[random() % (is_ascii ? ascii_kinds : kinds.size())];
    while (has_any && random() % 2) {
      c = static_cast<char32_t>(random() % (random() % 3 ? 0x3000 : num_code_points));
      if (!unassigned.contains(c) && !surrogates.contains(c)) break;
    }
    if (surrogates.contains(c)) continue;
    for (size_t times = random() % 8 ? 1 : 1 + random() % 5; times > 0; --times) append(text, c);
  }
  return text;
}

TEST(WordPatterns, FindTheMatchesOfTheirExpressions) {
  testing::skip_without("without ICU", require_unicode);
  constexpr size_t characters = 1'000'000;
  std::mt19937 random(7);
  for (const char* pattern : patterns) {
    const WordEnd end_of = word_end_of(pattern);
    ASSERT_NE(end_of, nullptr) << pattern;
    const Pattern regex = regular_expression(pattern, "test");
    for (size_t round = 0, done = 0; done < characters; ++round) {
      const std::string text = random_text(random, round % 2, round % 3 == 0);
      StepBudget budget(text.size());
      std::vector<size_t> expected, given;
      regex(text, budget, [&](size_t, size_t end) { expected.push_back(end); });
      for (size_t at = 0; at < text.size();) given.push_back(at = end_of(text, at));
      ASSERT_EQ(given, expected) << pattern << "\n" << ::testing::PrintToString(text);
      done += text.size() / 2;
    }
  }
  EXPECT_EQ(word_end_of(R"(\s+)"), nullptr);
}

}  // namespace
}  // namespace tessera::data::detail
