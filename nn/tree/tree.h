// Trees (JAX's pytrees): nested structs, vectors, optionals, ... whose leaves are arrays, and the walk over them.
#pragma once

#include <array>
#include <concepts>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "nn/tree/param.h"
#include "nn/tree/reflectable.h"
#include "sharding/array/array.h"
#include "sharding/diagnostics/error.h"
#include "sharding/placement/axis.h"
#include "sharding/random/key.h"

// Boost.PFR's own field count crashes g++ 12 where a default is a braced list ({.axes = {"batch", "embed"}}) or a
// std::array of structs. This overload is more constrained and takes the count from nn/tree/reflectable.h.
namespace boost::pfr::detail {
template <class T>
requires(tessera::nn::detail::is_counted<std::remove_cv_t<T>>) constexpr std::size_t fields_count() noexcept {
  return tessera::nn::detail::field_count<std::remove_cv_t<T>>;
}
}  // namespace boost::pfr::detail

#include <boost/pfr/core.hpp>
#include <boost/pfr/core_name.hpp>

namespace tessera::nn {

// The type of the field that holds an array.
enum class Kind { array, named_array, param, buffer };

// One array of a tree. The pointers point into the tree and are valid as long as it is.
struct Leaf {
  std::string path;  // layers.2.mlp.up.kernel
  Array* value = nullptr;
  Kind kind = Kind::array;
  const Axes* axes = nullptr;    // null for a bare Array
  const Rules* rules = nullptr;  // Param::rules; null for other kinds
  bool is_param() const { return kind == Kind::param; }
  operator const Array&() const { return *value; }
};

using Leaves = std::vector<Leaf>;

// The arrays of a tree without paths, in the order of its leaves: a walk of a few nanoseconds per array, for every
// step. `structure` hashes the sizes of vectors, the keys of maps, ...: where it is equal, trees of one type have equal
// paths.
struct BareArrays {
  std::vector<Array*> arrays;
  size_t structure = 0;
};

// Adds one more choice that the type leaves open (a size, a key, an alternative) to the hash `structure`.
inline size_t structure_with(size_t structure, size_t choice) { return structure * 1099511628211u + choice + 1; }

// A predicate on the leaves of a tree. Any function of (path, leaf) or of (path, array) converts to it:
//   [](const std::string& path, const Array& x) { return x.ndim() > 1; }
// A default-constructed Filter takes every leaf. Filters combine with &&, || and !. Ready-made ones: nn/tree/filter.h.
class Filter {
 public:
  Filter() = default;
  template <class F>
  requires(!std::same_as<std::remove_cvref_t<F>, Filter> &&
           std::is_invocable_r_v<bool, const std::remove_cvref_t<F>&, const std::string&, const Leaf&>) Filter(F&& f)
      : test_(std::forward<F>(f)) {}
  bool operator()(const std::string& path, const Leaf& leaf) const { return !test_ || test_(path, leaf); }
  bool operator()(const Leaf& leaf) const { return (*this)(leaf.path, leaf); }

 private:
  std::function<bool(const std::string&, const Leaf&)> test_;
};
Filter operator&&(const Filter& a, const Filter& b);
Filter operator||(const Filter& a, const Filter& b);
Filter operator!(const Filter& a);

// What a module or any other tree may be made of:
//   leaves      Param, Buffer, Array, NamedArray
//   structs     aggregates: public fields, no base class, no virtual function, no constructor
//   containers  vector, array (not of structs), optional, pair, tuple, map, variant (its active alternative)
//   static      numbers, enums, strings, keys, axes: part of the tree, but not leaves
//   classes     with the hook `template <class Visit> void visit_fields(Visit&& visit)`, which calls
//               visit("name", field) for each field
// Anything else is refused at compile time with one sentence.

namespace detail {

inline std::string join(const std::string& path, std::string_view name) {
  return path.empty() ? std::string(name) : path + "." + std::string(name);
}

// The dotted path of the current position of a walk. push returns the value to pass to the matching pop.
class Place {
 public:
  explicit Place(std::string path);
  const std::string& path() const { return path_; }
  size_t push(std::string_view name);
  void pop(size_t before);

 private:
  std::string path_;
};

// Whether T is a static value, neither walked nor an array: a number, a string, a vector of numbers.
template <class T>
constexpr bool is_value() {
  if constexpr (is_sequence<T>)
    return is_static<typename T::value_type>;
  else
    return is_static<T>;
}

template <class T>
inline constexpr bool is_module = !is_leaf<T> && !is_static<T> && !is_container<T>;

template <class T>
constexpr void check_elements() {
  if constexpr (is_std_array<T>)
    static_assert(!is_module<typename T::value_type>,
                  "tessera: a module has no std::array of modules; use std::vector.");
}

// Calls the visitor for every part of a tree: leaf(x) for an array and, if Visitor::sees_values, value(x) for a static
// field and node(x) for a struct or container, before its parts. push(name) and pop(...) enclose each part;
// note(choice), if the visitor has it, reports what the type leaves open: sizes, keys, alternatives.
template <class T, class Visitor>
void walk(T& node, Visitor& visitor);

template <class Visitor>
void note(size_t choice, Visitor& visitor) {
  if constexpr (requires { visitor.note(choice); }) visitor.note(choice);
}

template <class T, class Visitor>
void walk_under(std::string_view name, T& node, Visitor& visitor) {
  if constexpr (is_value<T>() && !Visitor::sees_values) return;
  const size_t before = visitor.push(name);
  walk(node, visitor);
  visitor.pop(before);
}
template <class T, class Visitor>
void walk_under(size_t number, T& node, Visitor& visitor) {
  if constexpr (is_value<T>() && !Visitor::sees_values) return;
  const size_t before = visitor.keeps_path() ? visitor.push(std::to_string(number)) : 0;
  walk(node, visitor);
  visitor.pop(before);
}

template <class T, class Visitor>
void walk_map(T& node, Visitor& visitor) {
  for (auto& [key, item] : node) {
    note(std::hash<std::remove_cvref_t<decltype(key)>>()(key), visitor);
    if constexpr (std::convertible_to<decltype(key), std::string_view>)
      walk_under(std::string_view(key), item, visitor);
    else
      walk_under(std::string_view(std::to_string(key)), item, visitor);
  }
}

template <class T, class Visitor>
void walk_container(T& node, Visitor& visitor) {
  size_t i = 0;
  if constexpr (is_sequence<T>) {
    check_elements<T>();
    note(node.size(), visitor);
    for (auto& item : node) walk_under(i++, item, visitor);
  } else if constexpr (is_optional<T>) {
    note(node.has_value(), visitor);
    if (node) walk(*node, visitor);
  } else if constexpr (is_map<T>) {
    walk_map(node, visitor);
  } else if constexpr (is_variant<T>) {
    note(node.index(), visitor);
    std::visit([&](auto& active) { walk(active, visitor); }, node);
  } else {
    std::apply([&](auto&... items) { (walk_under(i++, items, visitor), ...); }, node);
  }
}

template <class T>
inline constexpr auto field_names = boost::pfr::names_as_array<T>();

template <class T, class Visitor>
void walk_fields(T& node, Visitor& visitor) {
  boost::pfr::for_each_field(node, [&](auto& field, auto number) -> void {
    walk_under(std::string_view(field_names<T>[number]), field, visitor);
  });
}

template <class T, class Visitor>
void walk(T& node, Visitor& visitor) {
  if constexpr (is_leaf<T>) {
    visitor.leaf(node);
  } else if constexpr (is_value<T>()) {
    if constexpr (Visitor::sees_values) visitor.value(node);
  } else {
    if constexpr (Visitor::sees_values) visitor.node(node);
    if constexpr (is_container<T>) {
      walk_container(node, visitor);
    } else if constexpr (has_hook<T>) {
      node.visit_fields([&](std::string_view name, auto& field) { walk_under(name, field, visitor); });
    } else if constexpr (check_reflectable<T>()) {
      if constexpr (field_count<T> != 0) walk_fields(node, visitor);
    }
  }
}

// Walks a const tree as a non-const one: a visitor of a const tree must not write to it.
template <class Tree, class Visitor>
void walk_all(Tree& tree, Visitor& visitor) {
  walk(const_cast<std::remove_const_t<Tree>&>(tree), visitor);
}

// Collects leaves with their paths, or arrays alone.
class Collector {
 public:
  static constexpr bool sees_values = false;
  Collector(Leaves& out, const std::string& path) : leaves_(&out), place_(path) {}
  explicit Collector(BareArrays& out) : bare_(&out), place_("") {}

  bool keeps_path() const { return leaves_; }
  size_t push(std::string_view name) { return leaves_ ? place_.push(name) : 0; }
  void pop(size_t before) {
    if (leaves_) place_.pop(before);
  }
  void note(size_t choice) {
    if (bare_) bare_->structure = structure_with(bare_->structure, choice);
  }
  void leaf(Array& x) { add(x, Kind::array, nullptr, nullptr); }
  void leaf(NamedArray& x) { add(x.value, Kind::named_array, &x.axes, nullptr); }
  void leaf(Param& x) { add(x.value, Kind::param, &x.axes, &x.rules); }
  void leaf(Buffer& x) { add(x.value, Kind::buffer, &x.axes, nullptr); }

 private:
  void add(Array& x, Kind kind, const Axes* axes, const Rules* rules) {
    if (leaves_)
      add_leaf(x, kind, axes, rules);
    else
      bare_->arrays.push_back(&x);
  }
  void add_leaf(Array& x, Kind kind, const Axes* axes, const Rules* rules);

  Leaves* leaves_ = nullptr;
  BareArrays* bare_ = nullptr;
  Place place_;
};

}  // namespace detail

// All arrays of a tree, in the order of its fields, with their paths below `path`.
template <class Tree>
Leaves leaves(Tree& tree, const std::string& path = "") {
  Leaves out;
  detail::Collector collector(out, path);
  detail::walk_all(tree, collector);
  return out;
}
inline const Leaves& leaves(const Leaves& already) { return already; }

// The same arrays without paths.
template <class Tree>
BareArrays bare_arrays(Tree& tree) {
  BareArrays out;
  detail::Collector collector(out);
  detail::walk_all(tree, collector);
  return out;
}

// Several trees under names of their own: named("model", model, "optimizer", optimizer).
template <class Tree, class... Rest>
Leaves named(const std::string& name, Tree& tree, Rest&&... rest) {
  Leaves all = leaves(tree, name);
  if constexpr (sizeof...(Rest) > 0)
    for (Leaf& leaf : named(std::forward<Rest>(rest)...)) all.push_back(std::move(leaf));
  return all;
}

// ---- map, fold ------------------------------------------------------------------------------------------------------

// Error (bad_argument), naming both paths, if two leaves are one and the same array: it would be trained twice.
void check_distinct(const Leaves& leaves, const char* verb);

// Error (bad_argument), naming the first path that differs, unless both trees have the same paths in the same order.
void check_same_structure(const Leaves& expected, const Leaves& given, const char* verb);

namespace detail {

// Error (absent) if the i-th array of this tree is absent although the first tree has it.
void check_present(const Leaves& tree, size_t i, const char* verb);

template <class Tree, class F, class... Rest>
Tree map_leaves(const char* verb, const Tree& tree, F f, const Rest&... rest) {
  Tree result = tree;
  const Leaves all = leaves(result);
  const std::array<Leaves, sizeof...(Rest)> others{leaves(rest)...};
  for (const Leaves& other : others) check_same_structure(all, other, verb);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].value->is_absent()) continue;
    for (const Leaves& other : others) check_present(other, i, verb);
    std::apply(
        [&](const auto&... other) { *all[i].value = f(all[i].path, std::as_const(*all[i].value), *other[i].value...); },
        others);
  }
  return result;
}

}  // namespace detail

// A copy of the tree with every array replaced by f(path, array); absent arrays stay absent. With more trees of the
// same structure f gets the arrays at one path, f(path, x, y, ...); the rest of the result is that of the first tree.
// Errors, with the first path: trees of different structures (bad_argument), an array that only the first has (absent).
template <class F, class Tree, class... Rest>
Tree tree_map_with_path(F&& f, const Tree& tree, const Rest&... rest) {
  return detail::map_leaves("tree_map_with_path", tree, f, rest...);
}

// The same with f(x, y, ...), or with f(path, x, y, ...).
//   const Model mean = nn::tree_map([](const Array& x, const Array& y) { return (x + y) / 2; }, a, b);
template <class F, class Tree, class... Rest>
Tree tree_map(F&& f, const Tree& tree, const Rest&... rest) {
  const auto call = [&](const std::string& path, const auto&... x) -> Array {
    if constexpr (std::is_invocable_v<F&, const std::string&, decltype(x)...>)
      return f(path, x...);
    else
      return f(x...);
  };
  return detail::map_leaves("tree_map", tree, call, rest...);
}

// The arrays of a tree that are not absent.
template <class Tree>
std::vector<Array> tree_leaves(const Tree& tree) {
  std::vector<Array> result;
  for (const Array* x : bare_arrays(tree).arrays)
    if (!x->is_absent()) result.push_back(*x);
  return result;
}

// value = f(value, array) for each array that is not absent: nn::tree_reduce(sum_of_squares, model, zeros({})).
template <class F, class Tree, class Value>
Value tree_reduce(F&& f, const Tree& tree, Value value) {
  for (const Array* x : bare_arrays(tree).arrays)
    if (!x->is_absent()) value = f(std::move(value), *x);
  return value;
}

}  // namespace tessera::nn
