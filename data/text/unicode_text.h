// Text that records the origin of each byte; byte-level characters, regular expressions and normal forms.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/character_classes.h"
#include "data/text/step_budget.h"

namespace tessera::data::detail {

// Bytes [begin, end) of the original text, which is shorter than 2^31 bytes.
struct ByteRange {
  int32_t begin, end;
};

// UTF-8 text with the range of the original text that each byte comes from. It is a view of a part of the original
// text, which must outlive it, or of a text made from one. Parts are views too.
class AlignedText {
 public:
  AlignedText() = default;
  // Views bytes [begin, begin + text.size()) of the original text. The origin of each byte is its complete character.
  AlignedText(std::string_view text, int32_t begin) : text_(text), begin_(static_cast<size_t>(begin)) {}

  std::string_view text() const& { return text_; }  // valid as long as this object
  std::string text() && { return std::string(text_); }
  bool empty() const { return text_.empty(); }
  // Returns the range of the original that bytes [begin, end) come from; begin < end.
  ByteRange origin(size_t begin, size_t end) const;
  // Returns bytes [begin, end), which are complete characters.
  AlignedText part(size_t begin, size_t end) const;

  // Append to a text that was empty at first and has no copies or parts.
  void reserve(size_t bytes);
  void append(std::string_view text, ByteRange origin);
  void append(const AlignedText& other, size_t begin, size_t end);

 private:
  struct Made {
    std::string text;
    std::vector<ByteRange> origin;  // one for each byte
  };
  Made& made();

  std::string_view text_;
  size_t begin_ = 0;            // where text_ begins, in made_ or else in the original text
  std::shared_ptr<Made> made_;  // null: a part of the original text
};

// Throws Error (invalid_file) if the library was built without ICU.
void require_unicode();

// Returns the beginning of a text, for an error that quotes it.
std::string shortened(std::string_view text);

// Returns the number of bytes of the character that begins with this byte, in valid UTF-8.
size_t character_bytes(char first);
// Returns the code point at byte `place`.
char32_t character_at(std::string_view text, size_t place);

// Counts the characters of a text that begin before a byte. Fast if the byte is near the previous one.
class CharacterCounts {
 public:
  explicit CharacterCounts(std::string_view text) : text_(text) {}
  int64_t before(size_t byte) {
    const auto begins_character = [&](size_t at) { return (text_[at] & 0xC0) != 0x80; };
    for (; at_ < byte; ++at_) count_ += begins_character(at_);
    for (; at_ > byte; --at_) count_ -= begins_character(at_ - 1);
    return count_;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
  int64_t count_ = 0;  // characters before at_
};

// Returns the place of the character before byte `place`.
size_t character_before(std::string_view text, size_t place);
// Return the end of the text without the white space before `end`, down to `least`, and with the white space after it.
size_t before_white_space(std::string_view text, size_t end, size_t least);
size_t after_white_space(std::string_view text, size_t end);
bool is_punctuation(char32_t c);     // of Unicode 8, and all of ASCII's symbols, as `tokenizers`
bool is_combining_mark(char32_t c);  // of Unicode 9
// Returns the text in lower case, as Rust's char::to_lowercase (Unicode 17).
AlignedText lower_case(const AlignedText& text);

enum class NormalForm : uint8_t { c, d, kc, kd };
AlignedText normalized(const AlignedText& text, NormalForm form);

// Returns the UTF-8 of each byte's character. Byte-level tokens spell bytes as characters, by GPT-2's table.
const std::array<std::string, 256>& spelled_bytes();
// Returns the text with each byte replaced by its character.
AlignedText bytes_as_characters(const AlignedText& text);
// Returns the byte of a character of byte-level tokens; -1: no such byte.
int byte_of_character(char32_t c);
// Returns UTF-8 in which each invalid sequence of bytes is replaced by U+FFFD, as Rust's from_utf8_lossy.
std::string valid_utf8(std::string_view bytes);

// Calls visit(begin, end) for the matches in a text, in order. Several threads may use one Pattern.
using Pattern =
    std::function<void(std::string_view text, StepBudget& budget, const std::function<void(size_t, size_t)>& visit)>;

// Returns the pattern of a regular expression in the dialect of tokenizer.json (Oniguruma's). An empty match directly
// after another match is skipped. Errors (invalid_file), which contain `where`: an invalid expression; when it is
// called, it exceeds the rest of the budget, or ICU's stack.
Pattern regular_expression(const std::string& expression, const std::string& where);

}  // namespace tessera::data::detail
