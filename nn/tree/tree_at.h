// tree_at: copies a tree with one or several parts replaced.
#pragma once

#include <concepts>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "nn/tree/filter.h"
#include "nn/tree/tree.h"

namespace tessera::nn {

namespace detail {

// True if a value of type V can replace a node of type T:
//   the same type
//   an Array for a leaf
//   a value for an optional
//   an alternative of a variant
//   a number for a number
//   a type that converts to a static type
template <class T, class V>
constexpr bool takes() {
  if constexpr (std::same_as<T, V> || (is_leaf<T> && std::same_as<V, Array>))
    return true;
  else if constexpr (is_optional<T>)
    return takes<typename T::value_type, V>() && !is_leaf<typename T::value_type>;
  else if constexpr (is_variant<T>)
    return []<class... A>(std::variant<A...>*) { return (std::same_as<A, V> || ...); }(static_cast<T*>(nullptr));
  else if constexpr (is_static<T>)
    return (std::is_arithmetic_v<T> && std::is_arithmetic_v<V>) ||
           (!std::is_arithmetic_v<T> && std::convertible_to<V, T>);
  else
    return false;
}

// Throws Error (invalid_argument): a number of this type cannot hold the given one.
[[noreturn]] void fail_number(double given, std::string_view type);

template <class T, class V>
void check_number(V value) {
  if constexpr (std::is_arithmetic_v<T> && !std::is_floating_point_v<T> && !std::same_as<T, V>) {
    const auto given = static_cast<long double>(value);
    const bool fits = given >= static_cast<long double>(std::numeric_limits<T>::lowest()) &&
                      given <= static_cast<long double>(std::numeric_limits<T>::max());
    if (!fits || static_cast<long double>(static_cast<T>(value)) != given)
      fail_number(static_cast<double>(given), type_name<T>());
  }
}

template <class T, class V>
void put(T& node, V&& value) {
  if constexpr (std::is_arithmetic_v<T> && std::is_arithmetic_v<std::remove_cvref_t<V>>) check_number<T>(value);
  if constexpr (is_leaf<T> && !std::same_as<T, Array> && std::same_as<std::remove_cvref_t<V>, Array>)
    node.value = std::forward<V>(value);
  else
    node = static_cast<T>(std::forward<V>(value));
}

// True if f can be called with the node and its result can replace the node.
template <class T, class F>
constexpr bool is_replaced_by_call() {
  if constexpr (std::is_invocable_v<const F&, const T&>)
    return takes<T, std::remove_cvref_t<std::invoke_result_t<const F&, const T&>>>();
  else
    return false;
}

// Replaces a node by a value, or by f(node). If neither fits, does nothing and returns false.
template <class T, class Replace>
bool replace_node(T& node, const Replace& replace) {
  if constexpr (takes<T, Replace>()) {
    put(node, replace);
    return true;
  } else if constexpr (is_replaced_by_call<T, Replace>()) {
    put(node, replace(std::as_const(node)));
    return true;
  } else if constexpr (is_variant<T>) {
    // f of the active alternative may return another alternative.
    return std::visit(
        [&](auto& active) {
          using Active = std::remove_cvref_t<decltype(active)>;
          if constexpr (std::is_invocable_v<const Replace&, const Active&> && !is_replaced_by_call<Active, Replace>()) {
            auto made = replace(std::as_const(active));
            if constexpr (takes<T, decltype(made)>()) {
              node = std::move(made);
              return true;
            }
          }
          return false;
        },
        node);
  } else {
    return false;
  }
}

// Returns true if the tree has any array; absent ones count.
template <class T>
bool has_arrays(T& tree) {
  if constexpr (is_leaf<T>)
    return true;
  else if constexpr (is_static<T>)
    return false;
  else
    return !bare_arrays(tree).arrays.empty();
}

// Replaces the parts whose path matches.
template <class Replace>
struct Replacer {
  std::string pattern;
  const Replace& replace;
  std::vector<std::string> seen = {}, matched = {}, replaced = {};
  std::string_view type = {};  // type of the last part that matched but was not replaced
  bool shares_arrays = false;  // true if the inserted value has arrays

  template <class T>
  void operator()(T& part, const Place& place) {
    const std::string path = place.path();
    if (seen.empty() || seen.back() != path) seen.push_back(path);
    if (!path_matches(path, pattern)) return;
    matched.push_back(path);
    if (!replaced.empty() && replaced.back() == path) return;  // already replaced with its variant or optional
    if (!replace_node(part, replace)) {
      type = type_name<T>();
      return;
    }
    replaced.push_back(path);
    if constexpr (takes<T, Replace>()) shares_arrays |= has_arrays(part);
  }
};

// Checks the result of a replacement. Errors (invalid_argument): no path matches, the replacement fits no match, or one
// value with arrays for several nodes.
void check_replaced(std::string_view pattern, const std::vector<std::string>& seen,
                    const std::vector<std::string>& matched, const std::vector<std::string>& replaced,
                    std::string_view type, std::string_view given, bool shares_arrays);

}  // namespace detail

// Returns a copy of the tree in which the part that `where` selects is replaced by `replace` (eqx.tree_at). If
// `replace` is a function, it is called with the part, and its result replaces the part. `where` is
//   a member            nn::tree_at(&Mlp::up, model, other_linear)
//   a function          nn::tree_at([](auto& m) -> auto& { return m.layers[2].mlp.up.kernel; }, model, array)
//   a path, or pattern  nn::tree_at("layers.*.attn.q.kernel", model, [](const Array& w) { return w * 0.5; })
// An Array that replaces a Param, a Buffer or a NamedArray keeps the names of the dimensions. With a path, the argument
// type of the function selects the type of the parts: [](const Linear& q) { ... } replaces Linears, and may return
// another alternative of a variant. Types must agree: a path to a Linear needs a Linear.
// Errors (invalid_argument)
//   a path that is not in the tree (the message lists similar paths)
//   a replacement that does not fit the part
//   one value for several parts, which would then share its arrays
//   a number that the part cannot hold
template <class Where, class Tree, class Replace>
Tree tree_at(Where&& where, Tree tree, const Replace& replace) {
  if constexpr (std::convertible_to<Where, std::string_view>) {
    detail::Replacer<Replace> replacer{.pattern = std::string(std::string_view(where)), .replace = replace};
    detail::walk_all(tree, replacer);
    detail::check_replaced(replacer.pattern, replacer.seen, replacer.matched, replacer.replaced, replacer.type,
                           detail::type_name<Replace>(), replacer.shares_arrays);
  } else {
    using Part = decltype(std::invoke(where, tree));
    static_assert(std::is_lvalue_reference_v<Part> && !std::is_const_v<std::remove_reference_t<Part>>,
                  "tessera: the function of tree_at must return a reference into the tree: [](auto& m) -> auto& { "
                  "return m.head; }.");
    auto& part = std::invoke(where, tree);
    static_assert(
        detail::takes<std::remove_reference_t<Part>, Replace>() ||
            std::is_invocable_v<const Replace&, const std::remove_reference_t<Part>&>,
        "tessera: tree_at replaces a part by a value of the same type, or by the result of a function of the part.");
    if constexpr (detail::takes<std::remove_reference_t<Part>, Replace>())
      detail::put(part, replace);
    else
      detail::put(part, replace(std::as_const(part)));
  }
  return tree;
}

}  // namespace tessera::nn
