// Embedding's lookup and its transpose.
#include "nn/layers/embedding.h"

namespace tessera::nn {

Embedding Embedding::init(const Key& key, const Axis& vocab, const Axis& embed, const Initializer& initializer) {
  return {.tokens = {initializer(key, {vocab.size, embed.size}), {vocab, embed}}};
}

Array Embedding::operator()(Operand ids) const { return embedding({tokens, ids.where()}, ids.array()); }
Array Embedding::attend(Operand x) const { return matmul(x, transpose({tokens, x.where()})); }

}  // namespace tessera::nn
