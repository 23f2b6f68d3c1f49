// A test whether a type is a tree with arrays, which causes no compile error, and operator<<, which prints such a tree.
#pragma once

#include <concepts>
#include <cstddef>
#include <iosfwd>
#include <type_traits>
#include <utility>

#include "nn/tree/tree.h"
#include "nn/tree/tree_summary.h"

namespace tessera {
namespace nn {
namespace detail {

// Properties of a type: whether it can be walked, and whether it has an array (an empty vector of arrays counts).
struct TreeKind {
  bool is_tree = true, has_array = false;
  constexpr TreeKind operator+(TreeKind other) const {
    return {is_tree && other.is_tree, has_array || other.has_array};
  }
};

// `Outer`: the structs that enclose T. A struct within itself is not a tree.
template <class T, class... Outer>
constexpr TreeKind tree_kind() {
  if constexpr (is_leaf<T> || has_hook<T>)
    return {.has_array = true};
  else if constexpr (is_value<T>())
    return {};
  else if constexpr (is_sequence<T> || is_optional<T>)
    return tree_kind<typename T::value_type, Outer...>() +
           TreeKind{.is_tree = !is_std_array<T> || !is_module<typename T::value_type>};
  else if constexpr (is_map<T>)
    return tree_kind<typename T::mapped_type, Outer...>();
  else if constexpr (is_container<T>)
    return []<template <class...> class Container, class... Part>(std::type_identity<Container<Part...>>) {
      return (TreeKind() + ... + tree_kind<Part, Outer...>());
    }(std::type_identity<T>());
  else if constexpr ((std::same_as<T, Outer> || ...) || !is_counted<T>)
    return {.is_tree = false};
  else
    return []<size_t... I>(std::index_sequence<I...>) {
      return (TreeKind() + ... + tree_kind<boost::pfr::tuple_element_t<I, T>, T, Outer...>());
    }
  (std::make_index_sequence<field_count<T>>());
}
template <class T>
constexpr bool is_tree_of_arrays() {
  const TreeKind kind = tree_kind<T>();
  return kind.is_tree && kind.has_array;
}

template <class T>
concept PrintedModule =
    std::is_class_v<T> && std::is_aggregate_v<T> && !is_leaf<T> && !is_container<T> && is_tree_of_arrays<T>();

}  // namespace detail

// Prints nn::tree_summary(module) for a struct with arrays that has no operator<< of its own: std::cout << model.
// Programs with `using namespace tessera` find this operator. Other programs, and namespaces that declare another
// operator<<, write `using tessera::operator<<;` or print nn::tree_summary(model).
template <detail::PrintedModule Module>
std::ostream& operator<<(std::ostream& out, const Module& module) {
  return detail::print(out, tree_summary(module));
}

}  // namespace nn
using nn::operator<<;  // for programs with `using namespace tessera`
}  // namespace tessera
