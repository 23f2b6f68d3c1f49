// Unigram and bigram entropies of a byte or token source.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>

#include "data/sources/source.h"

namespace tessera::data {

// Computes H(X) = -sum_a p(a) ln p(a) over the byte frequencies, in nats per byte: the loss of the best model that
// ignores all context. It is between 0 and ln 256 = 5.545. Reads the whole source once.
double unigram_entropy(const ByteSource& source);

// Computes H(X_t | X_{t-1}) = -sum_{a,b} p(a, b) ln p(b | a) over all pairs of adjacent bytes (across files too), in
// nats per byte. This is the loss of the best model that sees one byte of context: a language model with a higher loss
// has learned at most pairs. The entropy is at most the unigram entropy, apart from the first byte, which has no
// context. It is 0 for a source of one byte.
double bigram_entropy(const ByteSource& source);

// Computes the same entropies over documents of tokens, in nats per token. The first token of a document has no
// context.
class TokenEntropies {
 public:
  void add(std::span<const int32_t> document);
  double unigram() const;
  double bigram() const;

 private:
  int64_t tokens_ = 0, pairs_ = 0;
  std::unordered_map<int32_t, int64_t> counts_, befores_;  // counts of all tokens; of tokens with a successor
  std::unordered_map<int64_t, int64_t> followers_;         // count of each pair
};

}  // namespace tessera::data
