// Text that knows where its bytes come from, and the Unicode of tokenizers: regular expressions, normal forms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/step_budget.h"

namespace tessera::data::detail {

// Bytes [begin, end) of the text that was given, which is shorter than 2^31 bytes.
struct ByteRange {
  int32_t begin, end;
};

// UTF-8 text made from a part of a given text, with the place there of what each byte was made from.
class AlignedText {
 public:
  AlignedText() = default;
  // Bytes [begin, begin + text.size()) of the given text; each byte has its whole character's place.
  AlignedText(std::string_view text, int32_t begin);

  const std::string& text() const { return text_; }
  bool empty() const { return text_.empty(); }
  // Where bytes [begin, end) come from; begin < end.
  ByteRange origin(size_t begin, size_t end) const { return {origin_[begin].begin, origin_[end - 1].end}; }

  void reserve(size_t bytes) { text_.reserve(bytes), origin_.reserve(bytes); }
  void append(std::string_view text, ByteRange origin);
  void append(const AlignedText& other, size_t begin, size_t end);
  AlignedText part(size_t begin, size_t end) const;

 private:
  std::string text_;
  std::vector<ByteRange> origin_;  // one for each byte
};

// Error (invalid_file): the library was built without ICU.
void require_unicode();

// The beginning of a text, for an error that quotes it.
std::string shortened(std::string_view text);

// The number of bytes of the character that begins with this byte, of valid UTF-8.
size_t character_bytes(char first);
// The code point at this place.
char32_t character_at(std::string_view text, size_t place);
bool is_white_space(char32_t c);
bool is_number(char32_t c);
bool is_word_character(char32_t c);  // a letter, mark, number or connector

enum class NormalForm : uint8_t { c, d, kc, kd };
AlignedText normalized(const AlignedText& text, NormalForm form);

// A regular expression of the dialect of tokenizer.json (Oniguruma's); `where` names it in the Error (invalid_file) for
// one that cannot be read. May be used by several threads.
class Regex {
 public:
  Regex(const std::string& pattern, const std::string& where);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  // Calls visit(begin, end) for the matches in `text`, in order; an empty one directly behind another match is none.
  // Error (invalid_file), which names the expression: it takes more than what is left of the budget, or than ICU's
  // stack.
  void for_each_match(std::string_view text, StepBudget& budget,
                      const std::function<void(size_t, size_t)>& visit) const;

 private:
  struct Compiled;
  std::unique_ptr<const Compiled> compiled_;
};

}  // namespace tessera::data::detail
