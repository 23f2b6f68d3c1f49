// accumulate_gradients: the gradient of a batch, computed in micro-batches and reduced once.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <type_traits>
#include <utility>

#include "nn/transformations/value_and_grad.h"
#include "nn/tree/tree_parts.h"

namespace tessera::nn {

namespace detail {

void check_micro_batches(int64_t n, const char* verb = "accumulate_gradients");
// Returns the number of blocks of dimension 0: the least common multiple of all arrays' numbers of shards.
int64_t blocks_of_rows(std::initializer_list<Leaves> batches);
// Replaces each array by micro-batch `i` of `n` along dimension 0: 1/n of the rows of each of `blocks` blocks. Every
// device therefore keeps its own rows, nothing is communicated, and matching rows of different arrays stay together.
void take_micro_batch(const Leaves& batch, int64_t blocks, int64_t i, int64_t n);
// Throws Error (not_divisible) unless all arrays of these trees can be split this way.
void check_rows(std::initializer_list<Leaves> batches, int64_t blocks, int64_t n, const char* verb);
// Checks options.shard_gradients_over.
// Errors
//   unknown_axis: an axis that the model's mesh does not have
//   invalid_argument: an axis that is given twice
void check_axes(const Leaves& model, const GradientOptions& options, const char* verb);
void fold_keys(const Parts& parts, int64_t i);
// Adds the gradients to the sums, in float32 or a wider type.
void add(const Leaves& sums, const Leaves& gradients);

template <class Tree>
Tree micro_batch(Tree tree, int64_t blocks, int64_t i, int64_t n) {
  if (n == 1) return tree;
  take_micro_batch(leaves(tree), blocks, i, n);
  fold_keys(parts_of(tree), i);
  return tree;
}

// ---- WeightedSum losses: each micro-batch differentiates the sum, and returns its weight as aux

struct NoAux {};
template <class Aux>
struct Weighed {
  Array weight;
  Aux aux;
};

// Returns the scalar that a micro-batch differentiates, and its aux. A single micro-batch needs no weight: its loss is
// divided immediately, as in value_and_grad, so its gradient needs no division.
template <class Aux>
std::pair<Array, Weighed<Aux>> as_part(std::pair<WeightedSum, Aux> loss, bool is_only) {
  if (is_only) return {scalar_loss(loss.first), {Array(), std::move(loss.second)}};
  check_weight(loss.first.weight);
  return {std::move(loss.first.sum), {std::move(loss.first.weight), std::move(loss.second)}};
}
inline std::pair<Array, Weighed<NoAux>> as_part(WeightedSum loss, bool is_only) {
  return as_part(std::pair(std::move(loss), NoAux()), is_only);
}
template <class Loss>
Loss as_part(Loss loss, bool) {
  return loss;
}

template <class F>
struct PartLoss {
  F loss_fn;
  bool is_only = false;

  template <class Model, class... Args>
  requires requires(const F& f, Model& model, const Args&... args) { f(model, args...); }
  auto operator()(Model& model, const Args&... args) const {
    if constexpr (std::is_void_v<decltype(loss_fn(model, args...))>)
      loss_fn(model, args...);  // value_and_grad rejects it
    else
      return as_part(loss_fn(model, args...), is_only);
  }
};

template <class F>
inline constexpr bool captures_nothing<PartLoss<F>> = captures_nothing<F>;

// ---- results of the micro-batches

// Losses, the sum of their gradients, and the weight of each loss. Without weights, all losses weigh the same.
struct PartSums {
  std::vector<Array> losses, weights;
  Leaves gradients;

  void add(const Array& loss, const Array& weight);
  // Divides the gradients and the loss by the number of micro-batches or by the sum of weights, and returns the loss.
  // The gradients get the element types of `params`, and are reduced to their shardings if the options ask for it.
  Array finish(const Leaves& params, const GradientOptions& options);
};

inline const Array& loss_in(const Array& value) { return value; }
template <class Aux>
const Array& loss_in(const std::pair<Array, Aux>& value) {
  return value.first;
}

template <class Value>
Array weight_in(const Value&) {
  return {};
}
template <class Aux>
Array weight_in(const std::pair<Array, Weighed<Aux>>& value) {
  return value.second.weight;
}

inline NoAux aux_in(Array) { return {}; }
template <class Aux>
Aux aux_in(std::pair<Array, Aux> value) {
  return std::move(value.second);
}
template <class Aux>
Aux aux_in(std::pair<Array, Weighed<Aux>> value) {
  return std::move(value.second.aux);
}

template <class F, class Model, class... Args>
auto accumulate_gradients_of(const F& call, int64_t n, const GradientOptions& options, Model& model,
                             const Args&... batch) {
  using Tree = std::remove_const_t<Model>;
  Tree running = model;  // the model receives its Buffers only after the last micro-batch
  const int64_t blocks = blocks_of_rows({leaves(batch)...});
  check_rows({leaves(batch)...}, blocks, n, "accumulate_gradients");
  check_axes(leaves(model), options, "accumulate_gradients");
  const auto part = [&](int64_t i) { return call(static_cast<Model&>(running), micro_batch(batch, blocks, i, n)...); };
  auto [first, gradients] = part(0);
  using Aux = decltype(aux_in(first));
  PartSums sums{.losses = {}, .weights = {}, .gradients = leaves(gradients)};
  std::vector<Aux> aux;
  const auto take = [&](auto value) {
    sums.add(loss_in(value), weight_in(value));
    aux.push_back(aux_in(std::move(value)));
  };
  take(std::move(first));
  for (int64_t i = 1; i < n; ++i) {
    auto [value, more] = part(i);
    add(sums.gradients, leaves(more));
    take(std::move(value));
  }
  Array loss = sums.finish(leaves(model), options);
  if constexpr (!std::is_const_v<Model>) take_state(model, running);
  if constexpr (std::is_same_v<Aux, NoAux>)
    return std::pair(std::move(loss), std::move(gradients));
  else
    return std::pair(std::pair(std::move(loss), std::move(aux)), std::move(gradients));
}

}  // namespace detail

// Returns a function that computes nn::value_and_grad(loss_fn)(model, batch...) with the activations of only 1/n of the
// batch. It splits dimension 0 of every array of the arguments into n micro-batches, which run one after another.
//   const auto [loss, grads] = nn::accumulate_gradients(mse, 4)(model, batch);
// If the loss function returns a WeightedSum, sums, gradients and weights are added up and divided at the end. The
// result is the loss and the gradients of the complete batch, however its tokens are distributed over the
// micro-batches.
// If the loss function returns an Array, loss and gradients are means over the micro-batches. They equal those of the
// complete batch if the loss is a mean over rows of equal weight.
// Gradients stay partial sums until the last micro-batch, and are reduced once. Only the gradients of sharded weights
// are reduce-scattered in each micro-batch, so that no device holds a complete gradient.
// A filter selects the trained arrays, as in value_and_grad. Aux is returned as a std::vector with one entry per
// micro-batch. Buffers pass from one micro-batch to the next (running statistics see n small batches), and the model
// receives the last ones after everything has succeeded. With several micro-batches, a Key among the arguments, or in
// one of them, is fold_in(key, i) for micro-batch i, so that dropout masks differ.
// Errors, in addition to those of value_and_grad
//   invalid_argument: n < 1
//   not_divisible: n does not divide the number of rows that a device has of an array
template <class F>
auto accumulate_gradients(F loss_fn, int64_t n, Filter trained, GradientOptions options = {},
                          std::source_location where = std::source_location::current()) {
  detail::check_micro_batches(n);
  GradientOptions of_part = options;
  if (n > 1) of_part.reduce = false, of_part.shard_gradients_over.clear();
  return [call = value_and_grad(detail::PartLoss<F>{std::move(loss_fn), n == 1}, std::move(trained), of_part, where), n,
          options, where](auto&& model, const auto&... batch) {
    const CallerScope caller(where);
    detail::AsModel<decltype(model)>& as_given = model;
    return detail::accumulate_gradients_of(call, n, options, as_given, batch...);
  };
}
template <class F>
auto accumulate_gradients(F loss_fn, int64_t n, GradientOptions options = {},
                          std::source_location where = std::source_location::current()) {
  return accumulate_gradients(std::move(loss_fn), n, is_trainable, options, where);
}

}  // namespace tessera::nn
