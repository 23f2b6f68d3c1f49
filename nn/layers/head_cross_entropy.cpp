// Which kernel a head has, and which way it lies.
#include "nn/layers/head_cross_entropy.h"

#include "nn/layers/module_scope.h"
#include "nn/layers/shapes.h"
#include "sharding/base/caller.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/linalg/linear_algebra.h"
#include "sharding/operations/shape/joining.h"

namespace tessera::nn {

namespace {

constexpr const char* verb = "head_cross_entropy";

// What a head multiplies: its logits are x kernel.
struct Factors {
  Array x, kernel;
};

// x kernel + scale (x a) b is one product, of x beside scale (x a) and the kernel above b.
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

template <class Head, class Loss>
auto loss_of(const Head& head, const Operand& x, LinearCrossEntropyOptions& options, const Loss& loss) {
  const CallerScope caller(x.where());
  const ModuleScope scope(head);
  const Factors factors = factors_of(head, x.array());
  if constexpr (std::is_same_v<Head, Embedding>) {
    options.transposed = true;
    if (!options.vocab) options.vocab = head.vocab;
  } else {
    options.transposed = false;
  }
  return loss(Operand(factors.x, x.where()), factors.kernel);
}

template <class Head>
Array mean_of(const Head& head, const Operand& x, const Array& labels, LinearCrossEntropyOptions& options) {
  return loss_of(head, x, options, [&](const Operand& in, const Array& kernel) {
    return tessera::linear_cross_entropy(in, kernel, labels, options);
  });
}

template <class Head>
WeightedSum sum_of(const Head& head, const Operand& x, const Array& labels, LinearCrossEntropyOptions& options) {
  return loss_of(head, x, options, [&](const Operand& in, const Array& kernel) {
    return tessera::linear_cross_entropy_sum(in, kernel, labels, options);
  });
}

}  // namespace

Array head_cross_entropy(const Linear& head, Operand x, const Array& labels, LinearCrossEntropyOptions options) {
  return mean_of(head, x, labels, options);
}
Array head_cross_entropy(const Embedding& head, Operand x, const Array& labels, LinearCrossEntropyOptions options) {
  return mean_of(head, x, labels, options);
}

WeightedSum head_cross_entropy_sum(const Linear& head, Operand x, const Array& labels,
                                   LinearCrossEntropyOptions options) {
  return sum_of(head, x, labels, options);
}
WeightedSum head_cross_entropy_sum(const Embedding& head, Operand x, const Array& labels,
                                   LinearCrossEntropyOptions options) {
  return sum_of(head, x, labels, options);
}

}  // namespace tessera::nn
