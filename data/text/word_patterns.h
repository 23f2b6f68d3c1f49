// Finds the words of known tokenizers without a regular expression engine.
#pragma once

#include <cstddef>
#include <string_view>

namespace tessera::data::detail {

// Returns the end of the word that begins at byte `begin` of a text. Each character of a text is in a word.
using WordEnd = size_t (*)(std::string_view text, size_t begin);
size_t gpt2_word_end(std::string_view text, size_t begin);

// Returns the function that finds the matches of a regular expression, if it is spelled as in the files of GPT-2,
// Llama 3, Qwen 2 or GPT-4o (o200k). Returns nullptr for other expressions.
WordEnd word_end_of(std::string_view pattern);

}  // namespace tessera::data::detail
