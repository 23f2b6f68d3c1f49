// Text and the places that its bytes come from.
#include "data/text/unicode_text.h"

namespace tessera::data::detail {

AlignedText::AlignedText(std::string_view text, int32_t begin) : text_(text) {
  origin_.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const auto n = static_cast<int32_t>(character_bytes(text[i]));
    for (int32_t k = 0; k < n; ++k) origin_.push_back({begin, begin + n});
    begin += n;
    i += static_cast<size_t>(n);
  }
}

void AlignedText::append(std::string_view text, ByteRange origin) {
  text_ += text;
  origin_.resize(text_.size(), origin);
}

void AlignedText::append(const AlignedText& other, size_t begin, size_t end) {
  text_.append(other.text_, begin, end - begin);
  origin_.insert(origin_.end(), other.origin_.begin() + static_cast<ptrdiff_t>(begin),
                 other.origin_.begin() + static_cast<ptrdiff_t>(end));
}

AlignedText AlignedText::part(size_t begin, size_t end) const {
  AlignedText part;
  part.append(*this, begin, end);
  return part;
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

}  // namespace tessera::data::detail
