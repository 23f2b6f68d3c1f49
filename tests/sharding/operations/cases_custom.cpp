// The validator's cases of functions with gradients of their own.
#include "sharding/operations/custom_gradient.h"
#include "sharding/operations/define_operation.h"
#include "tests/sharding/operations/cases.h"

namespace tessera::testing {

namespace {

using T = at::Tensor;
using Pair = std::pair<at::Tensor, at::Tensor>;

T swell(const T& x) { return x * at::tanh(at::softplus(x)); }

T swell_backward(const T& g, const T& x) {
  const T t = at::tanh(at::softplus(x));
  return g * (t + x * (1 - t * t) * at::sigmoid(x));
}

Case elementwise() {
  static const auto op = define_operation("swell", "*", swell, {.backward = swell_backward});
  return {{"swell"}, {"swell with its own gradient", {random_tensor({4, 8}, 1)}, OURS(op(x[0])), THEIRS(swell(x[0]))}};
}

Case broadcast() {
  static const auto op =
      define_operation("weighted", "*", [](const T& x, const T& y) { return x * y * y; },
                       {.backward = [](const T& g, const T& x, const T& y) { return Pair(g * y * y, 2 * g * x * y); }});
  return {{"weighted"},
          {"broadcast product with its own gradient",
           {random_tensor({4, 8}, 1), random_tensor({8}, 2)},
           OURS(op(x[0], x[1])),
           THEIRS(x[0] * x[1] * x[1])}};
}

T distances(const T& a, const T& b) { return (a.unsqueeze(-2) - b).square().sum(-1); }

Case contraction() {
  static const auto op =
      define_operation("distances", "i k, j k -> i j", distances, {.backward = [](const T& g, const T& a, const T& b) {
                         const T twice = 2 * g.unsqueeze(-1) * (a.unsqueeze(-2) - b);
                         return Pair(twice.sum(1), -twice.sum(0));
                       }});
  return {{"distances"},
          {"distances with their own gradient",
           {random_tensor({4, 8}, 1), random_tensor({4, 8}, 2)},
           OURS(op(x[0], x[1])),
           THEIRS(distances(x[0], x[1]))}};
}

Case by_position() {
  static const auto op =
      define_operation("weigh_positions", "b t -> b t",
                       [](const T& x, const BlockContext& block) {
                         return x * at::arange(block.offset("t"), block.offset("t") + x.size(1), x.options());
                       },
                       {.backward = [](const T& g, const T&, const BlockContext& block) {
                         return g * at::arange(block.offset("t"), block.offset("t") + g.size(1), g.options());
                       }});
  return {{"weigh_positions"},
          {"weights of positions with their own gradient",
           {random_tensor({4, 8}, 1)},
           OURS(op(x[0])),
           THEIRS(x[0] * at::arange(x[0].size(1), x[0].options()))}};
}

Case product_of_arrays() {
  const auto product = [](const Array& a, const Array& b) { return matmul(a, b); };
  const auto op = custom_gradient(
      product, [](const Array& a, const Array& b) { return std::pair(matmul(a, b), std::pair(a, b)); },
      [](const std::pair<Array, Array>& saved, const Array& g) {
        return std::pair(matmul(g, transpose(saved.second)), matmul(transpose(saved.first), g));
      });
  return {{"custom product"},
          {"product with a custom gradient",
           {random_tensor({4, 8}, 1), random_tensor({8, 2}, 2)},
           OURS(op(x[0], x[1])),
           THEIRS(x[0].matmul(x[1]))}};
}

Case softmax_of_arrays() {
  const auto op = custom_gradient([](const Array& x) { return softmax(x, -1); },
                                  [](const Array& x) {
                                    const Array y = softmax(x, -1);
                                    return std::pair(y, y);
                                  },
                                  [](const Array& y, const Array& g) { return y * (g - sum(g * y, {-1}, true)); });
  return {
      {"custom softmax"},
      {"softmax with a custom gradient", {random_tensor({4, 8}, 1)}, OURS(op(x[0])), THEIRS(at::softmax(x[0], -1))}};
}

}  // namespace

std::vector<Case> custom_cases() {
  return {elementwise(), broadcast(), contraction(), by_position(), product_of_arrays(), softmax_of_arrays()};
}

}  // namespace tessera::testing
