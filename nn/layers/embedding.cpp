// Lookup and logits of Embedding, and head_cross_entropy for both kinds of heads.
#include "nn/layers/embedding.h"

#include "nn/layers/shapes.h"
#include "sharding/base/fail.h"
#include "sharding/operations/index/indexing.h"
#include "sharding/operations/linalg/linear_algebra.h"
#include "sharding/operations/shape/joining.h"
#include "sharding/operations/shape/shapes.h"

namespace tessera::nn {

Embedding Embedding::init(const Key& key, const Axis& vocab, const Axis& embed, const Initializer& initializer,
                          const DTypePolicy& dtypes) {
  check_axis("Embedding", vocab), check_axis("Embedding", embed);
  const Array tokens = initial("Embedding", "initializer", initializer, key, {vocab.size, embed.size});
  return {.tokens = {dtypes.param(tokens), {vocab, embed}}, .dtypes = dtypes};
}

Array Embedding::operator()(Operand ids) const {
  const LayerScope scope(*this, ids);
  check_there("Embedding", tokens);
  return dtypes.out(embedding({dtypes.in(tokens), ids.where()}, ids.array(), {}, vocab));
}

Array Embedding::attend(Operand x) const {
  const LayerScope scope(*this, x);
  check_features("Embedding.attend", x.array(), tokens, 1);
  return dtypes.out(matmul({dtypes.in(x.array()), x.where()}, transpose({dtypes.in(tokens), x.where()})));
}

namespace {

constexpr const char* verb = "head_cross_entropy";

// Factors of a head's product: the logits are x kernel.
struct Factors {
  Array x, kernel;
};

// Computes x kernel + scale (x a) b as one product: [x, scale (x a)] by columns, times [kernel, b] by rows.
Factors factors_of(const Linear& head, const Array& x) {
  if (head.bias)
    fail(ErrorKind::invalid_argument, verb,
         "the head has a bias, expected a kernel alone. Make it with {.bias = false}, or write cross_entropy(head(x), "
         "labels).");
  check_features(verb, x, head.kernel);
  const Array in = head.dtypes.in(x), kernel = head.dtypes.in(head.kernel);
  if (!head.lora) return {in, kernel};
  const Array thin = head.lora->scale * matmul(in, head.dtypes.in(head.lora->a));
  return {concatenate({in, thin}, -1), concatenate({stop_gradient(kernel), head.dtypes.in(head.lora->b)}, 0)};
}

Factors factors_of(const Embedding& head, const Array& x) {
  check_features(verb, x, head.tokens, 1);
  return {head.dtypes.in(x), head.dtypes.in(head.tokens)};
}

// Returns the loss of a head. `loss` is tessera::linear_cross_entropy, or the function that returns its sum and weight.
template <class Head, class Loss>
auto loss_of(const Head& head, const Operand& x, const Array& labels, LinearCrossEntropyOptions& options, Loss loss) {
  const LayerScope scope(head, x);
  const Factors factors = factors_of(head, x.array());
  if constexpr (std::is_same_v<Head, Embedding>) {
    options.transposed = true;
    if (!options.vocab) options.vocab = head.vocab;
  } else {
    options.transposed = false;
  }
  return loss(Operand(factors.x, x.where()), factors.kernel, labels, options);
}

}  // namespace

Array head_cross_entropy(const Linear& head, Operand x, const Array& labels, LinearCrossEntropyOptions options) {
  return loss_of(head, x, labels, options, linear_cross_entropy);
}
Array head_cross_entropy(const Embedding& head, Operand x, const Array& labels, LinearCrossEntropyOptions options) {
  return loss_of(head, x, labels, options, linear_cross_entropy);
}

WeightedSum head_cross_entropy_sum(const Linear& head, Operand x, const Array& labels,
                                   LinearCrossEntropyOptions options) {
  return loss_of(head, x, labels, options, linear_cross_entropy_sum);
}
WeightedSum head_cross_entropy_sum(const Embedding& head, Operand x, const Array& labels,
                                   LinearCrossEntropyOptions options) {
  return loss_of(head, x, labels, options, linear_cross_entropy_sum);
}

}  // namespace tessera::nn
