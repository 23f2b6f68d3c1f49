// Embedding's lookup and its transpose.
#include "nn/layers/embedding.h"

namespace tessera::nn {

Embedding Embedding::init(const Key& key, const Axis& vocab, const Axis& embed, const Initializer& initializer) {
  return {.tokens = {initializer(key, {vocab.size, embed.size}), {vocab, embed}}};
}

Array Embedding::operator()(const Array& ids) const { return embedding(tokens, ids); }
Array Embedding::attend(const Array& x) const { return matmul(x, transpose(tokens)); }

}  // namespace tessera::nn
