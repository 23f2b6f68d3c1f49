// remat: a module call that recomputes its intermediate values in the backward pass instead of keeping them.
#pragma once

#include <memory>
#include <optional>
#include <source_location>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "nn/transformations/buffers.h"
#include "nn/tree/tree.h"
#include "sharding/autodiff/remat.h"
#include "sharding/base/caller.h"

namespace tessera::nn {

namespace detail {

// True if a T is walked for arrays. Anything else (numbers, functions) is passed through unchanged.
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

// True if a call may change this part (the function or an argument): a tree that is not const. Other parts are const.
template <class T>
inline constexpr bool may_change = is_tree<std::remove_const_t<T>> && !std::is_const_v<T>;
template <class T>
using AsPart = std::conditional_t<may_change<T>, T, const T>;

// Appends the Buffers that one run changed in a part to the results; `given` are the part's arrays before the run.
template <class Part>
void append_buffers(Part& before, Part& after, const std::vector<Array>& given, std::vector<Array>& results) {
  const Leaves places = leaves(before);
  const std::vector<Array> kept =
      kept_after_call(places, bare_arrays(before).structure, given, bare_arrays(after), "remat", /*settle=*/false);
  for (size_t i = 0; i < places.size(); ++i)
    if (places[i].kind == Kind::buffer) results.push_back(kept[i]);
}

template <class Part>
void write_buffers(Part& part, Part& copy, std::vector<Array>::const_iterator& next) {
  const Leaves places = leaves(part);
  std::vector<Array> kept(places.size());
  for (size_t i = 0; i < places.size(); ++i)
    if (places[i].kind == Kind::buffer) kept[i] = *next++;
  write_back(part, places, kept, copy, "remat");
}

// One call of remat: a function, which may be a module, and its arguments. Parts are their types, const or not.
template <class... Parts>
class RematCall {
 public:
  using Copies = std::tuple<std::remove_const_t<Parts>...>;
  using Result = std::decay_t<decltype(std::apply([](auto& g, auto&... rest) { return g(rest...); },
                                                  std::declval<std::tuple<Parts&...>>()))>;
  static_assert(is_tree<Result>, "tessera: a function under remat must return an Array or a struct of arrays.");

  RematCall(const std::source_location& where, Parts&... parts) : where_(where), copies_(parts...) {}

  std::vector<Array> values() const {
    std::vector<Array> values;
    std::apply([&](const auto&... part) { (append_values(part, values), ...); }, copies_);
    return values;
  }

  // Returns the arrays of the result, then the Buffers of the parts that the call may change. Works on copies of all
  // parts.
  std::vector<Array> run(const std::vector<Array>& values) {
    const CallerScope caller(where_);  // also during recomputation
    Copies before = copies_;
    auto next = values.begin();
    std::apply([&](auto&... part) { (replace_values(part, next), ...); }, before);
    Copies after = before;
    Result result = call(after, std::index_sequence_for<Parts...>());
    std::vector<Array> results;
    append_values(result, results);
    append_all_buffers(before, after, results, std::index_sequence_for<Parts...>());
    if (!first_) first_.emplace(std::move(result), std::move(after));
    return results;
  }

  // Returns the first run's result with the arrays in `results`, and writes the Buffers among them back to the parts.
  Result finish(const std::vector<Array>& results, Parts&... parts) {
    auto next = results.begin();
    auto [result, after] = std::move(*first_);
    replace_values(result, next);
    [&]<size_t... I>(std::index_sequence<I...>) { (write<Parts>(parts, std::get<I>(after), next), ...); }
    (std::index_sequence_for<Parts...>());
    return result;
  }

 private:
  template <size_t F, size_t... I>
  static Result call(Copies& parts, std::index_sequence<F, I...>) {
    using All = std::tuple<Parts...>;
    return static_cast<std::tuple_element_t<F, All>&>(std::get<F>(parts))(
        static_cast<std::tuple_element_t<I, All>&>(std::get<I>(parts))...);
  }
  template <size_t... I>
  static void append_all_buffers(Copies& before, Copies& after, std::vector<Array>& results,
                                 std::index_sequence<I...>) {
    (append_of<Parts>(std::get<I>(before), std::get<I>(after), results), ...);
  }
  template <class Part, class Copy>
  static void append_of(Copy& before, Copy& after, std::vector<Array>& results) {
    if constexpr (may_change<Part>) append_buffers(before, after, values_of(bare_arrays(before).arrays), results);
  }
  template <class Part, class Copy>
  static void write(Part& part, Copy& copy, std::vector<Array>::const_iterator& next) {
    if constexpr (may_change<Part>) write_buffers(part, copy, next);
  }

  std::source_location where_;
  Copies copies_;
  std::optional<std::pair<Result, Copies>> first_;  // result of the first run
};

template <class... Parts>
auto remat_of(const std::source_location& where, RematPolicy policy, Parts&... parts) {
  const auto call = std::make_shared<RematCall<Parts...>>(where, parts...);
  const std::vector<Array> results =
      tessera::remat([call](const std::vector<Array>& values) { return call->run(values); }, call->values(), policy);
  return call->finish(results, parts...);
}

// True if the module is used by reference, so that the call can change it.
template <class F>
inline constexpr bool is_used_in_place =
    std::is_lvalue_reference_v<F>&& may_change<std::remove_reference_t<F>> && !std::is_empty_v<std::decay_t<F>>;

}  // namespace detail

// Returns a function that computes block(x, args...) without keeping intermediate values for the gradient: the backward
// pass calls block a second time. A stack of blocks then needs the activations of one block and the inputs of all
// blocks, for a third more work.
//   for (const Block& block : layers) x = nn::remat(block)(x);
// Gradients flow to the arrays of the module and of every argument that is a tree. A lambda with captures fails to
// compile, because its captured arrays would get no gradient. The call changes a block or argument that is neither
// const nor a temporary, as without remat: the first run updates its Buffers (nn/transformations/buffers.h), and
// recomputation changes nothing.
//   for (Block& block : layers) x = nn::remat(block)(x);
// A policy keeps some intermediate values (sharding/autodiff/remat.h). With dots_saveable, results of matrix products
// are kept, and recomputation repeats only cheap operations. A policy selects kinds of operations, not names, because
// the work that leads to a named array is done before its name is known.
//   x = nn::remat(block, RematPolicy::dots_saveable)(x);
template <class F>
auto remat(F&& f, RematPolicy policy = RematPolicy::nothing_saveable,
           std::source_location where = std::source_location::current()) {
  using Function = std::decay_t<F>;
  static_assert(
      !detail::is_function_like<Function>() || std::is_empty_v<Function> || std::is_pointer_v<Function> ||
          requires { typename Function::HoldsNoArrays; },
      "tessera: the function under remat has captures, and captured arrays would get no gradient. Pass them "
      "as arguments.");
  if constexpr (detail::is_used_in_place<F>)
    return [&f, policy, where](auto&&... args) {
      return detail::remat_of(where, policy, f, static_cast<detail::AsPart<detail::AsModel<decltype(args)>>&>(args)...);
    };
  else
    return [f = Function(std::forward<F>(f)), policy, where](auto&&... args) {
      return detail::remat_of(where, policy, f, static_cast<detail::AsPart<detail::AsModel<decltype(args)>>&>(args)...);
    };
}

}  // namespace tessera::nn
