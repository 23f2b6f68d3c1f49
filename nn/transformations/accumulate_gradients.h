// accumulate_gradients: the gradient of a batch that is computed in micro-batches and reduced once.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <type_traits>
#include <utility>

#include "nn/transformations/value_and_grad.h"

namespace tessera::nn {

namespace detail {

void check_micro_batches(int64_t n);
// The number of shards of dim 0: the least common multiple over all arrays of these trees.
int64_t blocks_of_rows(std::initializer_list<Leaves> batches);
// Replaces each array by micro-batch `i` of `n` along dim 0: an n-th of the rows of each of `blocks` blocks. So every
// device keeps rows of its own, nothing is communicated, and matching rows of different arrays stay together.
void take_micro_batch(const Leaves& batch, int64_t blocks, int64_t i, int64_t n);
// sums += gradients, in float32 at least.
void add(const Leaves& sums, const Leaves& gradients);
// sums / n, in the element types of `params`, reduced to their placements if the options say so.
void finish_mean(const Leaves& sums, const Leaves& params, int64_t n, const GradientOptions& options);
Array mean_of(const std::vector<Array>& losses);

template <class Tree>
Tree micro_batch(Tree tree, int64_t blocks, int64_t i, int64_t n) {
  if (n > 1) take_micro_batch(leaves(tree), blocks, i, n);
  return tree;
}

// The losses of the micro-batches, and the sum of their gradients.
template <class Model>
struct PartSums {
  std::vector<Array> losses;
  Model gradients;

  void add(Array loss, Model part) {
    if (losses.empty())
      gradients = std::move(part);
    else
      detail::add(leaves(gradients), leaves(part));
    losses.push_back(std::move(loss));
  }
};

template <class F, class Model, class... Args>
auto accumulate_gradients_of(const F& call, int64_t n, const GradientOptions& options, Model& model,
                             const Args&... batch) {
  using Tree = std::remove_const_t<Model>;
  Tree running = model;  // the model gets its Buffers only after the last micro-batch
  const int64_t blocks = blocks_of_rows({leaves(batch)...});
  const auto part = [&](int64_t i) { return call(static_cast<Model&>(running), micro_batch(batch, blocks, i, n)...); };
  PartSums<Tree> sums;
  using Value = std::decay_t<decltype(part(0).first)>;
  if constexpr (std::is_same_v<Value, Array>) {
    for (int64_t i = 0; i < n; ++i) std::apply([&](auto&&... of) { sums.add(std::move(of)...); }, part(i));
    finish_mean(leaves(sums.gradients), leaves(model), n, options);
    if constexpr (!std::is_const_v<Model>) take_state(model, running);
    return std::pair(mean_of(sums.losses), std::move(sums.gradients));
  } else {
    std::vector<typename Value::second_type> aux;
    for (int64_t i = 0; i < n; ++i) {
      auto [value, gradients] = part(i);
      sums.add(std::move(value.first), std::move(gradients));
      aux.push_back(std::move(value.second));
    }
    finish_mean(leaves(sums.gradients), leaves(model), n, options);
    if constexpr (!std::is_const_v<Model>) take_state(model, running);
    return std::pair(std::pair(mean_of(sums.losses), std::move(aux)), std::move(sums.gradients));
  }
}

}  // namespace detail

// nn::accumulate_gradients(loss_fn, n)(model, batch...) is nn::value_and_grad(loss_fn)(model, batch...) for a loss that
// is a mean over the batch, with the activations of only an n-th of the batch: dim 0 of every array of the arguments is
// cut into n micro-batches, which run one after another. Loss and gradients are means over the micro-batches.
//   auto [loss, grads] = nn::accumulate_gradients(mse, 4)(model, batch);
// Gradients stay pending sums until the last micro-batch, and are reduced once; only those of sharded weights are
// reduce-scattered in each, so that no device holds a whole gradient. A filter says what is trained, as for
// value_and_grad. Aux comes back as a std::vector with one entry per micro-batch. Buffers go from one micro-batch to
// the next (running statistics see n small batches), and the model gets the last ones when all has succeeded. A Key
// among the arguments is the same for every micro-batch, so that all have equal dropout masks; a model that holds the
// key and splits it at each call avoids that (docs/modules.md).
// Errors: n < 1 (bad_argument); an array whose rows on each device n does not divide (uneven); those of value_and_grad.
template <class F>
auto accumulate_gradients(F loss_fn, int64_t n, Filter trained, GradientOptions options = {},
                          std::source_location where = std::source_location::current()) {
  detail::check_micro_batches(n);
  GradientOptions of_part = options;
  if (n > 1) of_part.reduce = false, of_part.shard.clear();
  return [call = value_and_grad(std::move(loss_fn), std::move(trained), of_part, where), n, options, where](
             auto&& model, const auto&... batch) {
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
