// train_tokenizer: a byte-level vocabulary of a text's own, as Hugging Face's BpeTrainer learns it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/text/tokenizer_steps.h"

namespace tessera::data {

struct TokenizerTrainerOptions {
  int64_t vocab_size = 30'000;                   // at most so many tokens, the special ones and the 256 bytes with them
  std::vector<std::string> special_tokens = {};  // they get the ids from 0 on, in this order: {"<|endoftext|>"}
  int64_t min_frequency = 0;                     // a pair that is seen less often is not merged
  // What words are, in which merges happen: a regular expression of tokenizer.json's dialect, each match a word and
  // what lies between two a word too. Empty: GPT-2's words.
  std::string pattern = {};
};

// Counts words and learns merges of them: byte pair encoding (Sennrich, Haddow and Birch, 2016). Of all pairs of
// adjacent tokens the most frequent becomes a token, of equally frequent ones the pair with the smaller ids, until
// the vocabulary is full or no pair is frequent enough: the merges and ids of BpeTrainer with the byte-level alphabet.
// Takes the memory of all distinct words, about 100 bytes each, and the time of a few thousand merges a second. One
// thread at a time. Needs ICU, as Tokenizer.
class TokenizerTrainer {
 public:
  // Errors (invalid_argument): a vocabulary smaller than the bytes and the special tokens, min_frequency < 0, a
  // special token that is empty or given twice; invalid_file: a pattern that cannot be read, a build without ICU.
  explicit TokenizerTrainer(const TokenizerTrainerOptions& options);

  // Errors: text that is not UTF-8 or has 2^31 bytes or more (invalid_argument); a pattern that takes too long
  // (invalid_file). Special tokens in it are text.
  void add(std::string_view text);

  // The text of a tokenizer.json, for a file that Tokenizer and Hugging Face's `tokenizers` open.
  // Error (invalid_argument): no text was added.
  std::string to_json() const;

 private:
  TokenizerTrainerOptions options_;
  detail::PreTokenizer pre_tokenizer_;
  std::unordered_map<std::string, int64_t> words_;  // of bytes as characters, and how often each was seen
};

// Of any range of texts, as vectors and datasets of strings:
//
//   std::ofstream("tokenizer.json") << train_tokenizer(lines({"books"}), {.vocab_size = 8192});
//
// Errors as TokenizerTrainer's.
template <class Texts>
std::string train_tokenizer(const Texts& texts, const TokenizerTrainerOptions& options) {
  TokenizerTrainer trainer(options);
  for (const auto& text : texts) trainer.add(text);
  return trainer.to_json();
}

}  // namespace tessera::data
