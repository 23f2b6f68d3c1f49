// Bytes written as characters, as byte-level tokens are: GPT-2's table, there and back.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "data/text/unicode_text.h"

namespace tessera::data::detail {

// The UTF-8 of each byte's character.
const std::array<std::string, 256>& spelled_bytes();
// Each byte as the character that stands for it.
AlignedText bytes_as_characters(const AlignedText& text);
// The byte that a character of byte-level tokens stands for; -1: none.
int byte_of_character(char32_t c);
// UTF-8, where each sequence of bytes that is none becomes U+FFFD, as Rust's from_utf8_lossy.
std::string valid_utf8(std::string_view bytes);

}  // namespace tessera::data::detail
