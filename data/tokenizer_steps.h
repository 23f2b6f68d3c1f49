// The steps of a tokenizer around its model: normalizers, pre-tokenizers, decoders and templates, read from their JSON.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/unicode_text.h"

namespace tessera::data::detail {

// A part of a tokenizer.json and its place there, for errors: "tokenizer.json: normalizer.normalizers.1".
struct JsonPart {
  const boost::json::value& value;
  std::string place;

  bool is_null() const { return value.is_null(); }
  // Errors (bad_file): it is missing, or of another type.
  JsonPart at(const std::string& key) const;
  std::vector<JsonPart> items() const;
  std::string text() const;
  bool flag(const std::string& key, bool otherwise) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  int64_t integer() const;
  bool has(const std::string& key) const;  // and it is not null
  [[noreturn]] void refuse(const std::string& what) const;
};

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

// The byte that a character of byte-level tokens stands for; -1: none.
int byte_of_character(char32_t c);
// UTF-8, where each sequence of bytes that is none becomes U+FFFD, as Rust's from_utf8_lossy.
std::string valid_utf8(std::string_view bytes);

}  // namespace tessera::data::detail
