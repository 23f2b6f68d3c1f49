// accumulate_gradients: the gradient of a batch that is worked off in micro-batches, reduced once.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <type_traits>
#include <utility>

#include "nn/value_and_grad.h"

namespace tessera::nn {

namespace detail {

void check_micro_batches(int64_t n);
// In how many blocks the devices cut dim 0 of the arrays of all these trees: a number that all of theirs divide.
int64_t blocks_of_rows(std::initializer_list<Leaves> batches);
// Part `i` of `n` of each array along its first dim, in place: of each of `blocks` blocks of rows one part, so that
// every device keeps rows of its own, nothing moves, and rows that belong together stay together.
void take_micro_batch(const Leaves& batch, int64_t blocks, int64_t i, int64_t n);
// Adds, in float32 at least.
void add(const Leaves& sums, const Leaves& gradients);
// sums / n, in the element types of `params`, reduced to their placements if the options say so.
void finish_mean(const Leaves& sums, const Leaves& params, int64_t n, const GradientOptions& options);
Array mean_of(const std::vector<Array>& losses);

template <class Tree>
Tree micro_batch(Tree tree, int64_t blocks, int64_t i, int64_t n) {
  take_micro_batch(leaves(tree), blocks, i, n);
  return tree;
}

}  // namespace detail

// nn::accumulate_gradients(loss_fn, n)(model, batch...) is nn::value_and_grad(loss_fn)(model, batch...) of a loss that
// is a mean over the batch, with the activations of an n-th of it: dim 0 of every array of the arguments is cut in n
// parts, worked off one after another. Loss and gradients are means over the parts.
//   auto [loss, grads] = nn::accumulate_gradients(mse, 4)(model, batch);
// Gradients stay pending sums until the last part, and are reduced once; only what belongs to sharded weights is
// reduce-scattered in each part, so that no device holds a whole gradient. Errors: n < 1 (bad_argument); an array whose
// rows on each device n does not divide (uneven). loss_fn returns no aux.
template <class F>
auto accumulate_gradients(F loss_fn, int64_t n, GradientOptions options = {},
                          std::source_location where = std::source_location::current()) {
  detail::check_micro_batches(n);
  GradientOptions unreduced = options;
  unreduced.reduce = false;
  return [loss_fn, n, options, unreduced, where](const auto& model, const auto&... batch) {
    const CallerScope caller(where);
    using Model = std::decay_t<decltype(model)>;
    static_assert(std::is_convertible_v<decltype(loss_fn(model, batch...)), Array>,
                  "tessera: a loss function under accumulate_gradients returns an Array, without aux.");
    if (n == 1) return value_and_grad(loss_fn, options)(model, batch...);
    std::vector<Array> losses;
    Model sums;
    const int64_t blocks = detail::blocks_of_rows({leaves(batch)...});
    for (int64_t i = 0; i < n; ++i) {
      auto [loss, grads] = value_and_grad(loss_fn, unreduced)(model, detail::micro_batch(batch, blocks, i, n)...);
      losses.push_back(std::move(loss));
      if (i == 0)
        sums = std::move(grads);
      else
        detail::add(leaves(sums), leaves(grads));
    }
    detail::finish_mean(leaves(sums), leaves(model), n, options);
    return std::pair<Array, Model>(detail::mean_of(losses), std::move(sums));
  };
}

}  // namespace tessera::nn
