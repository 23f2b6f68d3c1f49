// AlignedText: text with the origin of each byte; GPT-2's characters for bytes.
#include "data/sources/text_source.h"
#include "data/text/unicode_text.h"

namespace tessera::data::detail {

ByteRange AlignedText::origin(size_t begin, size_t end) const {
  if (made_) return {made_->origin[begin_ + begin].begin, made_->origin[begin_ + end - 1].end};
  const auto continues = [&](size_t i) { return (text_[i] & 0xC0) == 0x80; };
  while (begin > 0 && continues(begin)) --begin;
  while (end < text_.size() && continues(end)) ++end;
  return {static_cast<int32_t>(begin_ + begin), static_cast<int32_t>(begin_ + end)};
}

AlignedText AlignedText::part(size_t begin, size_t end) const {
  AlignedText part = *this;
  part.text_ = text_.substr(begin, end - begin);
  part.begin_ += begin;
  return part;
}

AlignedText::Made& AlignedText::made() {
  if (!made_) made_ = std::make_shared<Made>();
  return *made_;
}

void AlignedText::reserve(size_t bytes) {
  made().text.reserve(bytes);
  made().origin.reserve(bytes);
}

void AlignedText::append(std::string_view text, ByteRange origin) {
  made().text += text;
  made().origin.resize(made().text.size(), origin);
  text_ = made().text;
}

void AlignedText::append(const AlignedText& other, size_t begin, size_t end) {
  auto& [text, origin] = made();
  text += other.text_.substr(begin, end - begin);
  for (size_t i = begin; i < end; ++i) origin.push_back(other.origin(i, i + 1));
  text_ = text;
}

std::string shortened(std::string_view text) {
  constexpr size_t max_bytes = 200;  // two lines of a terminal
  if (text.size() <= max_bytes) return std::string(text);
  size_t end = max_bytes;
  while ((text[end] & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

size_t character_bytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

char32_t character_at(std::string_view text, size_t place) {
  const size_t n = character_bytes(text[place]);
  constexpr unsigned masks[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
  char32_t c = static_cast<unsigned char>(text[place]) & masks[n];
  for (size_t i = 1; i < n && place + i < text.size(); ++i)
    c = c << 6 | (static_cast<unsigned char>(text[place + i]) & 0x3F);
  return c;
}

size_t character_before(std::string_view text, size_t place) {
  do --place;
  while (place > 0 && (text[place] & 0xC0) == 0x80);
  return place;
}

size_t before_white_space(std::string_view text, size_t end, size_t least) {
  while (end > least && is_white_space(character_at(text, character_before(text, end))))
    end = character_before(text, end);
  return end;
}
size_t after_white_space(std::string_view text, size_t end) {
  while (end < text.size() && is_white_space(character_at(text, end))) end += character_bytes(text[end]);
  return end;
}

// ---- byte-level characters

namespace {

std::string utf8_of(char32_t c) {
  if (c < 0x80) return {static_cast<char>(c)};
  return {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};  // c < 0x800 for all characters
}

// Returns GPT-2's table: printable characters of Latin-1 stay, and other bytes become characters from U+0100 on.
const std::array<char32_t, 256>& characters_of_bytes() {
  static const std::array<char32_t, 256> table = [] {
    std::array<char32_t, 256> made{};
    char32_t next = 256;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool is_printable =
          (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
      made[byte] = is_printable ? byte : next++;
    }
    return made;
  }();
  return table;
}

}  // namespace

const std::array<std::string, 256>& spelled_bytes() {
  static const std::array<std::string, 256> spelled = [] {
    std::array<std::string, 256> made;
    for (size_t byte = 0; byte < 256; ++byte) made[byte] = utf8_of(characters_of_bytes()[byte]);
    return made;
  }();
  return spelled;
}

AlignedText bytes_as_characters(const AlignedText& text) {
  const std::array<std::string, 256>& spelled = spelled_bytes();
  AlignedText made;
  made.reserve(2 * text.text().size());  // avoids growing byte by byte for every word
  for (size_t i = 0; i < text.text().size(); ++i)
    made.append(spelled[static_cast<unsigned char>(text.text()[i])], text.origin(i, i + 1));
  return made;
}

int byte_of_character(char32_t c) {
  static const std::array<int, 512> table = [] {
    std::array<int, 512> made;
    made.fill(-1);
    for (size_t byte = 0; byte < 256; ++byte) made[characters_of_bytes()[byte]] = static_cast<int>(byte);
    return made;
  }();
  return c < table.size() ? table[c] : -1;
}

std::string valid_utf8(std::string_view bytes) {
  std::string valid;
  for (size_t i = 0; i < bytes.size();) {
    const auto [length, is_whole] = utf8_sequence(bytes, i);
    valid += is_whole ? bytes.substr(i, length) : std::string_view("\uFFFD");
    i += length;
  }
  return valid;
}

}  // namespace tessera::data::detail
