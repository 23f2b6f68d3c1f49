// Entropies of a byte source: the losses that a model which knows only frequencies would reach.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>

#include "data/sources/source.h"

namespace tessera::data {

// H(X) = -sum_a p(a) ln p(a) over the byte frequencies, in nats per byte: the loss of the best model that ignores all
// context. Between 0 and ln 256 = 5.545. Reads the whole source once.
double unigram_entropy(const ByteSource& source);

// H(X_t | X_{t-1}) = -sum_{a,b} p(a, b) ln p(b | a) over all pairs of adjacent bytes (across files too), in nats
// per byte: the loss of the best model that sees one byte of context, so a language model that does not get below it
// has not learned more than pairs. At most the unigram entropy (the first byte, which has no context, aside). 0 for a
// source of one byte.
double bigram_entropy(const ByteSource& source);

// The same over documents of tokens, in nats per token; the first token of a document has no context.
class TokenEntropies {
 public:
  void add(std::span<const int32_t> document);
  double unigram() const;
  double bigram() const;

 private:
  int64_t tokens_ = 0, pairs_ = 0;
  std::unordered_map<int32_t, int64_t> counts_, befores_;  // of each token; of each token that has one after it
  std::unordered_map<int64_t, int64_t> followers_;         // of each pair
};

}  // namespace tessera::data
