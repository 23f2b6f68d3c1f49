// train_tokenizer: trains a byte-level BPE vocabulary, as Hugging Face's BpeTrainer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/text/tokenizer_steps.h"

namespace tessera::data {

struct TokenizerTrainerOptions {
  int64_t vocab_size = 30'000;  // maximum number of tokens, including the special ones and the 256 bytes
  std::vector<std::string> special_tokens = {};  // they get the ids from 0 on, in this order: {"<|endoftext|>"}
  int64_t min_frequency = 0;                     // less frequent pairs are not merged
  // Regular expression, in tokenizer.json's dialect, that splits a text into words. Each match is a word, and each text
  // between two matches is a word. Merges happen only inside words. Empty: GPT-2's expression.
  std::string pattern = {};
};

// Counts words and learns merges by byte pair encoding (Sennrich, Haddow and Birch, 2016). The most frequent pair of
// adjacent tokens becomes a token; among equally frequent pairs, the pair with the smaller ids. This repeats until the
// vocabulary is full or no pair is frequent enough. Merges and ids equal BpeTrainer's with the byte-level
// alphabet. All distinct words are kept in memory, about 100 bytes each; a few thousand merges take one second. Each
// merge reads the words with its pair completely, so long words are slow: one word of 1 MB and 30,000 tokens take 34 s
// of one core. Use it from one thread at a time. Needs ICU, as Tokenizer.
class TokenizerTrainer {
 public:
  // Checks the options.
  // Errors
  //   invalid_argument: a vocabulary smaller than the bytes and the special tokens; min_frequency < 0; a special token
  //     that is empty or given twice
  //   invalid_file: an invalid pattern; a build without ICU
  explicit TokenizerTrainer(const TokenizerTrainerOptions& options);

  // Counts the words of a text. Special tokens in it are treated as text.
  // Errors
  //   invalid_argument: text that is not UTF-8 or has 2^31 bytes or more
  //   invalid_file: a pattern that takes too long
  void add(std::string_view text);

  // Returns the text of a tokenizer.json, which Tokenizer and Hugging Face's `tokenizers` open.
  // Error (invalid_argument): no text was added.
  std::string to_json() const;

 private:
  TokenizerTrainerOptions options_;
  detail::PreTokenizer pre_tokenizer_;
  std::unordered_map<std::string, int64_t> words_;  // count of each word, whose bytes are spelled as characters
};

// Trains on any range of texts, such as a vector or a dataset of strings:
//
//   std::ofstream("tokenizer.json") << train_tokenizer(lines({"books"}), {.vocab_size = 8192});
//
// Errors: as TokenizerTrainer.
template <class Texts>
std::string train_tokenizer(const Texts& texts, const TokenizerTrainerOptions& options) {
  TokenizerTrainer trainer(options);
  for (const auto& text : texts) trainer.add(text);
  return trainer.to_json();
}

}  // namespace tessera::data
