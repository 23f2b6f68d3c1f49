// The steps of a tokenizer around its model: normalizers, pre-tokenizers, decoders and templates, read from their JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/unicode_text.h"
#include "sharding/files/json_part.h"

namespace tessera::data::detail {

using tessera::detail::JsonPart;

using Normalizer = std::function<AlignedText(AlignedText)>;
using Pieces = std::vector<AlignedText>;
using PreTokenizer = std::function<Pieces(Pieces)>;
using TokenTexts = std::vector<std::string>;
using Decoder = std::function<TokenTexts(TokenTexts)>;

// Each of null JSON is the step that changes nothing. Error (bad_file): a type that is not known.
Normalizer normalizer_of(const JsonPart& json);
PreTokenizer pre_tokenizer_of(const JsonPart& json);
Decoder decoder_of(const JsonPart& json);

// Of a post-processor: what comes before and after a text, and whether white space at the ends of tokens is left out of
// their offsets.
struct Template {
  std::vector<int32_t> before, after;
  bool trims_offsets = false, adds_prefix_space = false;
};
Template template_of(const JsonPart& json);

}  // namespace tessera::data::detail
