// Embedding's lookup and its transpose.
#include "nn/layers/embedding.h"

#include "nn/layers/module_scope.h"
#include "nn/layers/shapes.h"
#include "sharding/base/caller.h"
#include "sharding/operations/index/indexing.h"
#include "sharding/operations/linalg/linear_algebra.h"
#include "sharding/operations/shape/shapes.h"

namespace tessera::nn {

Embedding Embedding::init(const Key& key, const Axis& vocab, const Axis& embed, const Initializer& initializer,
                          const DTypePolicy& dtypes) {
  check_axis("Embedding", vocab), check_axis("Embedding", embed);
  const Array tokens = initial("Embedding", "initializer", initializer, key, {vocab.size, embed.size});
  return {.tokens = {dtypes.param(tokens), {vocab, embed}}, .dtypes = dtypes};
}

Array Embedding::operator()(Operand ids) const {
  const CallerScope caller(ids.where());
  const ModuleScope scope(*this);
  check_there("Embedding", tokens);
  return dtypes.out(embedding({dtypes.in(tokens), ids.where()}, ids.array(), {}, vocab));
}

Array Embedding::attend(Operand x) const {
  const CallerScope caller(x.where());
  const ModuleScope scope(*this);
  check_features("Embedding.attend", x.array(), tokens, 1);
  return dtypes.out(matmul({dtypes.in(x.array()), x.where()}, transpose({dtypes.in(tokens), x.where()})));
}

}  // namespace tessera::nn
