// value_and_grad: a loss and its gradient, which is a model of the same type, placed as the model is.
#pragma once

#include <source_location>
#include <type_traits>
#include <utility>
#include <vector>

#include "nn/tree.h"
#include "sharding/caller.h"
#include "sharding/tape.h"

namespace tessera::nn {

namespace detail {

inline std::vector<Array> values_of(const Leaves& leaves) {
  std::vector<Array> values;
  for (const Leaf& leaf : leaves) values.push_back(*leaf.value);
  return values;
}

template <class Tree>
Tree with_values(const Tree& tree, const std::vector<Array>& values) {
  Tree result = tree;
  const Leaves all = leaves(result);
  for (size_t i = 0; i < all.size(); ++i) *all[i].value = values[i];
  return result;
}

template <class Aux>
Aux detached_tree(Aux aux) {
  for (const Leaf& leaf : leaves(aux)) *leaf.value = detached(*leaf.value);
  return aux;
}

template <class Result>
inline constexpr bool is_loss = std::is_convertible_v<Result, Array>;
template <class Aux>
inline constexpr bool is_loss<std::pair<Array, Aux>> = true;

template <class Model, class F, class... Args>
auto value_and_grad_of(const F& f, const GradientOptions& options, const Model& model, const Args&... args) {
  const Leaves all = leaves(model);
  check_distinct(all, "value_and_grad");
  Tape tape(values_of(all), options);
  const Model shadow = with_values(model, tape.shadows());
  auto result = f(shadow, args...);
  static_assert(is_loss<decltype(result)>,
                "tessera: a loss function returns an Array, or a std::pair of an Array and aux.");
  if constexpr (std::is_convertible_v<decltype(result), Array>) {
    const Array loss = std::move(result);
    Model gradient = with_values(model, tape.gradients(loss));
    return std::pair<Array, Model>(detached(loss), std::move(gradient));
  } else if constexpr (is_loss<decltype(result)>) {
    auto& [loss, aux] = result;
    Model gradient = with_values(model, tape.gradients(loss));
    return std::pair(std::pair(detached(loss), detached_tree(std::move(aux))), std::move(gradient));
  }
}

}  // namespace detail

// nn::value_and_grad(loss_fn)(model, args...) calls loss_fn(model, args...), which returns a floating scalar, or a pair
// of that and anything else (aux), and gives
//   auto [loss, grads] = nn::value_and_grad(mse)(model, batch);
//   auto [value, grads] = nn::value_and_grad(mse_with_aux)(model, batch);   // value = {loss, aux}
// `grads` is a Model: each floating array's gradient at that array's own placement, zeros if the loss does not use it;
// arrays that are not floating are absent. All gradients are reduced once, in one collective per set of mesh axes and
// element type. Loss and aux come back as plain values. The loss must be computed from the model that the function
// receives: a captured one gets no gradient, which is an Error (no_gradient). Calls may nest; they do not mix.
// The options (sharding/tape.h) say what becomes of gathered weights, and whether and how gradients are reduced:
//   nn::value_and_grad(loss_fn, {.borrow_gathers = false})(model, batch);
// What reduces the gradients is the line of value_and_grad to ledgers; what the function computes keeps its own.
template <class F>
auto value_and_grad(F f, GradientOptions options = {}, std::source_location where = std::source_location::current()) {
  return [f, options, where](const auto& model, const auto&... args) {
    const CallerScope caller(where);
    return detail::value_and_grad_of(f, options, model, args...);
  };
}

}  // namespace tessera::nn
