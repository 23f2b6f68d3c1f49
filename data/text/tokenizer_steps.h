// The steps of a tokenizer around its model: normalizers, pre-tokenizers, decoders and templates, read from their JSON.
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

// A step of a file is refused by its place there if it takes more than the budget.
using Normalizer = std::function<AlignedText(AlignedText, StepBudget&)>;
using EmitText = std::function<void(AlignedText)>;
// Emits the pieces of a text in order. Only one piece of each step is in memory at a time.
using PreTokenizer = std::function<void(AlignedText, StepBudget&, const EmitText&)>;
using TokenTexts = std::vector<std::string>;
using Decoder = std::function<TokenTexts(TokenTexts, StepBudget&)>;

// Each of null JSON is the step that changes nothing. Errors (invalid_file): a type that is not known, more than 64
// steps, more than 16,384 bytes of regular expressions.
Normalizer normalizer_of(const JsonPart& json);
PreTokenizer pre_tokenizer_of(const JsonPart& json);
Decoder decoder_of(const JsonPart& json);

// Of a post-processor: what comes before and after a text, and whether white space at the ends of tokens is left out of
// their offsets.
struct Template {
  std::vector<int32_t> before, after;
  bool trims_offsets = false, adds_prefix_space = false;
};
// Error (invalid_file): more than 1024 ids, or one that is not an id.
Template template_of(const JsonPart& json);

}  // namespace tessera::data::detail
