// One table, read both ways.
#include "data/text/byte_characters.h"

#include "data/sources/text_source.h"

namespace tessera::data::detail {
namespace {

std::string utf8_of(char32_t c) {
  if (c < 0x80) return {static_cast<char>(c)};
  return {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};  // all are below 0x800
}

// GPT-2's: printable characters of Latin-1 stand for themselves, other bytes for those from U+0100 on.
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
  made.reserve(2 * text.text().size());  // in place of growing byte by byte, for every word
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
