// Steps of a tokenizer around its model: normalizers, pre-tokenizers, decoders and templates, read from JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/text/step_budget.h"
#include "data/text/unicode_text.h"
#include "sharding/files/json_part.h"

namespace tessera::data::detail {

using tessera::detail::JsonPart;

// A step that exceeds the budget throws an Error that names its place in the file.
using Normalizer = std::function<AlignedText(AlignedText, StepBudget&)>;
using EmitText = std::function<void(AlignedText)>;
// Emits the pieces of a text in order. At each step only one piece is in memory at a time.
using PreTokenizer = std::function<void(AlignedText, StepBudget&, const EmitText&)>;
using TokenTexts = std::vector<std::string>;
using Decoder = std::function<TokenTexts(TokenTexts, StepBudget&)>;

// Return the step that the JSON describes; null JSON gives a step that changes nothing. Errors (invalid_file): an
// unsupported type; more than 64 steps; more than 16,384 bytes of regular expressions.
Normalizer normalizer_of(const JsonPart& json);
// Without `spells_bytes` a ByteLevel that is the last step emits bytes instead of the characters that spell them.
PreTokenizer pre_tokenizer_of(const JsonPart& json, bool spells_bytes = true);
bool ends_in_byte_level(const JsonPart& pre_tokenizer);
Decoder decoder_of(const JsonPart& json);

// A post-processor: the ids before and after a text, and whether the offsets of tokens exclude white space at their
// ends.
struct Template {
  std::vector<int32_t> before, after;
  bool trims_offsets = false, adds_prefix_space = false;
};
// Reads a post-processor. Error (invalid_file): more than 1024 ids; an invalid id.
Template template_of(const JsonPart& json);

}  // namespace tessera::data::detail
