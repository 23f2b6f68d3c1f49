// custom_gradient: a function of arrays with a custom gradient.
#pragma once

#include <concepts>
#include <functional>
#include <source_location>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "sharding/operations/operand.h"

namespace tessera {

namespace detail {

// Maps the cotangent of a result to one cotangent per argument; an absent one is zero.
using Pullback = std::function<std::vector<Array>(const Array& cotangent)>;
using ForwardWithPullback = std::function<std::pair<Array, Pullback>(const std::vector<Array>& arguments)>;

// Returns the arrays on one mesh without partial sums. Inside shard_map they vary along the same axes.
std::vector<Array> as_values(std::vector<Array> arrays, std::source_location where);
// Returns whether a tape records a function of these arrays now.
bool records_any(const std::vector<Array>& arguments);
// Returns the result of `forward`. Records its pullback as its gradient. `arguments` come from as_values.
Array with_pullback(const std::vector<Array>& arguments, const ForwardWithPullback& forward,
                    std::source_location where);

inline std::vector<Array> as_arrays(Array gradient) { return {std::move(gradient)}; }
inline std::vector<Array> as_arrays(std::vector<Array> gradients) { return gradients; }
template <class... T>
std::vector<Array> as_arrays(std::tuple<T...> gradients) {
  return std::apply([](auto&... g) { return std::vector<Array>{std::move(g)...}; }, gradients);
}
template <class A, class B>
std::vector<Array> as_arrays(std::pair<A, B> gradients) {
  return {std::move(gradients.first), std::move(gradients.second)};
}

template <class F, class Forward, class Backward>
class CustomGradient {
 public:
  CustomGradient(F f, Forward forward, Backward backward)
      : f_(std::move(f)), forward_(std::move(forward)), backward_(std::move(backward)) {}

  template <std::convertible_to<Operand>... More>
  Array operator()(Operand a, const More&... more) const {
    return call(std::make_index_sequence<1 + sizeof...(More)>(), {a.array(), Operand(more).array()...}, a.where());
  }

 private:
  template <size_t... I>
  Array call(std::index_sequence<I...>, std::vector<Array> x, std::source_location where) const {
    x = as_values(std::move(x), where);
    if (!records_any(x)) return as_values({f_(x[I]...)}, where)[0];
    const auto forward = [this](const std::vector<Array>& a) {
      auto made = forward_(a[I]...);
      auto pullback = [backward = backward_, residuals = std::move(made.second)](const Array& cotangent) {
        return as_arrays(backward(residuals, cotangent));
      };
      return std::pair<Array, Pullback>(std::move(made.first), std::move(pullback));
    };
    return with_pullback(x, forward, where);
  }

  F f_;
  Forward forward_;
  Backward backward_;
};

}  // namespace detail

// Returns a function that computes f and has a custom gradient (jax.custom_vjp):
//   const auto clipped = custom_gradient(
//       [](const Array& x) { return x; },
//       [](const Array& x) { return std::pair(x, nullptr); },
//       [](std::nullptr_t, const Array& g) { return clip(g, -1, 1); });
//   const Array y = clipped(x);
//
// Parameters
//   f: takes arrays and returns an Array; called if no gradient is recorded
//   forward: called instead of f if a gradient is recorded. Returns a std::pair of the same result, which is not
//     checked, and of residuals of any type.
//   backward: takes the residuals and the result's cotangent, which has the result's sharding. Returns the cotangents
//     of the arguments: an Array, or a pair, tuple or vector of Arrays. An absent Array is a gradient of zeros, for
//     example for an integer argument.
//
// The functions take and return arrays of any sharding. The cotangents that `backward` returns are resharded like the
// arguments. Partial sums are reduced before and after each function, so the gradient of a replicated parameter is
// reduced at each use. Captured arrays get no gradients. For second derivatives, `forward` and `backward` are
// differentiated.
//
// Errors
//   invalid_argument: a `backward` that does not return one array per argument
//   shape_mismatch, dtype_mismatch: a cotangent without the argument's shape or element type
//   device_mismatch: arguments on different meshes; a cotangent on another mesh than its argument
template <class F, class Forward, class Backward>
auto custom_gradient(F f, Forward forward, Backward backward) {
  return detail::CustomGradient<F, Forward, Backward>(std::move(f), std::move(forward), std::move(backward));
}

}  // namespace tessera
