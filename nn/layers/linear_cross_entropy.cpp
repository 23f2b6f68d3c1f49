// Which kernel a head has, and which way it lies.
#include "nn/layers/linear_cross_entropy.h"

#include "nn/layers/module_scope.h"
#include "nn/layers/shapes.h"
#include "sharding/diagnostics/caller.h"
#include "sharding/diagnostics/fail.h"

namespace tessera::nn {

namespace {

constexpr const char* verb = "linear_cross_entropy";

const Param& kernel_of(const Linear& head) {
  if (head.bias || head.lora)
    fail(ErrorKind::bad_argument, verb,
         "the head has a {}, expected a kernel alone. Make it with {{.bias = false}}, or write cross_entropy(head(x), "
         "labels).",
         head.bias ? "bias" : "low-rank change");
  return head.kernel;
}
const Param& kernel_of(const Embedding& head) { return head.tokens; }

template <class Head, class Loss>
auto loss_of(const Head& head, const Operand& x, LinearCrossEntropyOptions& options, const Loss& loss) {
  const CallerScope caller(x.where());
  const ModuleScope scope(head);
  const Param& kernel = kernel_of(head);
  if constexpr (std::is_same_v<Head, Embedding>) {
    options.transposed = true;
    if (!options.vocab) options.vocab = head.vocab;
  } else {
    options.transposed = false;
  }
  check_features(verb, x.array(), kernel, options.transposed ? 1 : 0);
  const Array in = head.dtypes.in(x.array());
  return loss(Operand(in, x.where()), head.dtypes.in(kernel));
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

Array linear_cross_entropy(const Linear& head, Operand x, const Array& labels, LinearCrossEntropyOptions options) {
  return mean_of(head, x, labels, options);
}
Array linear_cross_entropy(const Embedding& head, Operand x, const Array& labels, LinearCrossEntropyOptions options) {
  return mean_of(head, x, labels, options);
}

WeightedSum linear_cross_entropy_sum(const Linear& head, Operand x, const Array& labels,
                                     LinearCrossEntropyOptions options) {
  return sum_of(head, x, labels, options);
}
WeightedSum linear_cross_entropy_sum(const Embedding& head, Operand x, const Array& labels,
                                     LinearCrossEntropyOptions options) {
  return sum_of(head, x, labels, options);
}

}  // namespace tessera::nn
