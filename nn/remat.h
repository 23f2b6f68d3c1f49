// remat: a module call whose intermediate values are not kept, but computed again in the backward pass.
#pragma once

#include <memory>
#include <optional>
#include <source_location>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "nn/tree.h"
#include "sharding/caller.h"
#include "sharding/remat.h"

namespace tessera::nn {

namespace detail {

// What is walked for arrays; anything else (numbers, functions) is handed on as it is.
template <class T>
inline constexpr bool is_tree = is_leaf<T> || is_container<T> || has_hook<T> ||
                                (std::is_aggregate_v<T> && !is_static<T>);

template <class Tree>
void append_values(const Tree& tree, std::vector<Array>& values) {
  if constexpr (is_tree<Tree>)
    for (const Leaf& leaf : leaves(tree)) values.push_back(*leaf.value);
}

template <class Tree>
void replace_values(Tree& tree, std::vector<Array>::const_iterator& next) {
  if constexpr (is_tree<Tree>)
    for (const Leaf& leaf : leaves(tree)) *leaf.value = *next++;
}

template <class F, class... Args>
auto remat_of(const std::source_location& where, const F& f, const Args&... args) {
  using Result = std::decay_t<decltype(f(args...))>;
  static_assert(is_tree<Result>, "tessera: a function under remat returns an Array, or a struct of arrays.");
  const std::tuple<F, Args...> call(f, args...);
  std::vector<Array> values;
  std::apply([&](const auto&... part) { (append_values(part, values), ...); }, call);

  const auto first = std::make_shared<std::optional<Result>>();  // shows what the result looks like
  const auto flat = [call, first, where](const std::vector<Array>& arrays) {
    const CallerScope caller(where);  // in the second run, too
    auto now = call;
    auto next = arrays.begin();
    std::apply([&](auto&... part) { (replace_values(part, next), ...); }, now);
    Result result = std::apply([](const auto& g, const auto&... rest) { return g(rest...); }, now);
    std::vector<Array> results;
    append_values(result, results);
    if (!*first) *first = std::move(result);
    return results;
  };
  const std::vector<Array> results = tessera::remat(flat, values);
  Result result = std::move(**first);
  auto next = results.begin();
  replace_values(result, next);
  return result;
}

}  // namespace detail

// nn::remat(block)(x, args...) is block(x, args...), but of what happens inside nothing is kept for the gradient: the
// backward pass calls block a second time. A stack of blocks then needs the activations of one block, and the inputs of
// all, for a third more work.
//   for (const Block& block : layers) x = nn::remat(block)(x);
// Everything differentiable is an argument: the arrays of the module and of every argument that is a tree. A lambda
// that captures is refused at compile time, since what it captures would get no gradient.
template <class F>
auto remat(F f, std::source_location where = std::source_location::current()) {
  static_assert(!detail::is_function_like<F>() || std::is_empty_v<F> || std::is_pointer_v<F>,
                "tessera: remat of a function that captures. What it captures would get no gradient: make it an "
                "argument.");
  return [f = std::move(f), where](const auto&... args) { return detail::remat_of(where, f, args...); };
}

}  // namespace tessera::nn
