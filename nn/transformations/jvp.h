// jvp and hvp: the derivative of a function, and of a loss's gradient, in one direction.
#pragma once

#include <source_location>
#include <tuple>
#include <type_traits>
#include <utility>

#include "nn/transformations/value_and_grad.h"

namespace tessera::nn {

namespace detail {
void check_direction(const Leaves& tree, const Leaves& direction, const char* verb);
// Returns the sum of the products of the arrays that both trees have. If nothing that was computed depends on the
// tape's arrays `x`, adds 0 * x, so that a derivative of zero is not an Error.
Array inner_product(const Leaves& computed, const Leaves& constants, const Leaves& x);
// Replaces the arrays of a function's result by constants of the same types.
void make_cotangents(const Leaves& results);
}  // namespace detail

// Returns a function of (primals, tangents) that returns the pair of f(primals) and its derivative in the direction
// `tangents` (jax.jvp). Both have the type of f's result. A std::tuple of primals is passed as several arguments.
//   const auto [y, dy] = nn::jvp(f)(x, dx);
//   const auto [y, dy] = nn::jvp(f)(std::tuple(model, x), std::tuple(direction, dx));
// `tangents` has the type and structure of `primals`, as gradients do. An absent array is a tangent of zero. Tangents
// of integer arrays and of Buffers are ignored. Result arrays that are not floating have an absent tangent.
// jvp calls f twice and runs two backward passes. The gradient of f is linear in its cotangent; the second backward
// pass differentiates it with respect to the cotangent (https://j-towns.github.io/2017/06/12/A-new-trick.html).
// Inside value_and_grad, both results are differentiated.
// Errors
//   invalid_argument: tangents of another structure
//   shape_mismatch, dtype_mismatch: a tangent of another shape or element type than its primal
//   missing_array: all tangents are absent or ignored
//   no_gradient: no floating result; an operation without a second derivative; inside another value_and_grad, a result
//     that depends only on the outer model
template <class F>
auto jvp(F f, std::source_location where = std::source_location::current()) {
  return [f, where]<class Primals>(const Primals& primals, const Primals& tangents) {
    const CallerScope caller(where);
    detail::check_direction(leaves(primals), leaves(tangents), "jvp");
    const auto call = [&](const Primals& x) {
      if constexpr (detail::is_arguments<Primals>)
        return std::apply(f, x);
      else
        return f(x);
    };
    auto value = call(primals);
    using Value = decltype(value);
    Value cotangent = value;
    detail::make_cotangents(leaves(cotangent));
    const auto derivative = [&](const Value& u) {
      const auto product = [&](const Primals& x) {
        const Value y = call(x);
        return detail::inner_product(leaves(y), leaves(u), leaves(x));
      };
      const Primals pulled_back = grad(product)(primals);
      return detail::inner_product(leaves(pulled_back), leaves(tangents), leaves(u));
    };
    Value tangent = grad(derivative)(cotangent);
    return std::pair(std::move(value), std::move(tangent));
  };
}

// Returns a function of (model, args..., vector) that returns the product of the Hessian of loss_fn(model, args...) and
// the vector, a tree like the model. The result has the type and shardings of the gradients.
//   const Model product = nn::hvp(loss)(model, batch, vector);
// hvp computes the gradient of (gradient * vector), and never stores the Hessian. With a filter, as in value_and_grad,
// the Hessian has only the rows and columns of the trained arrays. Aux and changes of Buffers are dropped.
// Errors: those of value_and_grad, and of jvp for the vector.
template <class F>
auto hvp(F loss_fn, Filter trained = is_trainable, std::source_location where = std::source_location::current()) {
  return [loss_fn, trained, where]<class Model, class... Rest>(const Model& model, const Rest&... rest) {
    static_assert(
        (std::is_same_v<Model, Rest> || ...),
        "tessera: the last argument of hvp must be the vector, of the model's type: hvp(loss)(model, batch, v).");
    const CallerScope caller(where);
    const auto arguments = std::forward_as_tuple(rest...);
    const Model& vector = std::get<sizeof...(Rest) - 1>(arguments);
    detail::check_direction(leaves(model), leaves(vector), "hvp");
    const auto slope = [&]<size_t... I>(const Model& at, std::index_sequence<I...>) {
      Model copy = at;  // not const, for a loss that changes Buffers
      const Model gradient = value_and_grad(loss_fn, trained)(copy, std::get<I>(arguments)...).second;
      return detail::inner_product(leaves(gradient), leaves(vector), leaves(at));
    };
    const auto of_model = [&](const Model& at) { return slope(at, std::make_index_sequence<sizeof...(Rest) - 1>()); };
    return grad(of_model, trained)(model);
  };
}

}  // namespace tessera::nn
