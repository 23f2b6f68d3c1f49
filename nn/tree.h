// Trees: any struct of structs, vectors, optionals, ..., whose leaves are arrays, walked with their paths.
#pragma once

#include <concepts>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "nn/param.h"
#include "nn/reflectable.h"
#include "sharding/array.h"
#include "sharding/axis.h"
#include "sharding/error.h"
#include "sharding/key.h"

// PFR's own counting of fields crashes g++ 12 where a default is a braced list ({.axes = {"batch", "embed"}}) or a
// std::array of structs. Where a tree has counted already, this overload, the more constrained one, gives its number.
namespace boost::pfr::detail {
template <class T>
requires(tessera::nn::detail::is_counted<std::remove_cv_t<T>>) constexpr std::size_t fields_count() noexcept {
  return tessera::nn::detail::field_count<std::remove_cv_t<T>>;
}
}  // namespace boost::pfr::detail

#include <boost/pfr/core.hpp>
#include <boost/pfr/core_name.hpp>

namespace tessera::nn {

// What a tree holds an array as.
enum class Kind { array, named_array, param, buffer };

// One array of a tree. The pointers point into the tree and live as long as it does.
struct Leaf {
  std::string path;  // layers.2.mlp.up.kernel
  Array* value = nullptr;
  Kind kind = Kind::array;
  const Axes* axes = nullptr;    // null for a bare Array
  const Rules* rules = nullptr;  // of its own; null unless it is a Param
  bool is_param() const { return kind == Kind::param; }
  operator const Array&() const { return *value; }
};

using Leaves = std::vector<Leaf>;

// The arrays of a tree alone, in the order of its leaves: a walk of some nanoseconds an array, for what is done at
// every step. Trees of one type whose `structure` is equal (the sizes of vectors, the keys of maps, ...) have equal
// paths.
struct BareArrays {
  std::vector<Array*> arrays;
  size_t structure = 0;
};

// A predicate on the leaves of a tree. Any function of (path, leaf) is one, or of (path, array):
//   [](const std::string& path, const Array& x) { return x.ndim() > 1; }
// A default one takes everything. They combine with &&, || and !. Ready ones: nn/filter.h.
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
//   containers  vector, array, optional, pair, tuple, map, variant (its active alternative)
//   static      numbers, enums, strings, keys, axes: part of the tree, no leaf
// and of classes with the hook `template <class Visit> void visit_fields(Visit&& visit)` that calls
// visit("name", field) for each field. Anything else is refused at compile time with one sentence.

namespace detail {

inline std::string join(const std::string& path, std::string_view name) {
  return path.empty() ? std::string(name) : path + "." + std::string(name);
}
inline std::string join(const std::string& path, size_t number) { return join(path, std::to_string(number)); }
inline void note(Leaves&, size_t) {}

inline void add_leaf(Leaves& out, const std::string& path, Array& x) { out.push_back({path, &x, Kind::array}); }
inline void add_leaf(Leaves& out, const std::string& path, NamedArray& x) {
  out.push_back({path, &x.value, Kind::named_array, &x.axes});
}
inline void add_leaf(Leaves& out, const std::string& path, Param& x) {
  out.push_back({path, &x.value, Kind::param, &x.axes, &x.rules});
}
inline void add_leaf(Leaves& out, const std::string& path, Buffer& x) {
  out.push_back({path, &x.value, Kind::buffer, &x.axes});
}

// The walk without paths: which array stands where follows from the type and from what is noted.
struct NoPath {};
template <class Name>
NoPath join(NoPath, const Name&) {
  return {};
}
inline void note(BareArrays& out, size_t choice) { out.structure = out.structure * 1099511628211u + choice + 1; }
inline void add_leaf(BareArrays& out, NoPath, Array& x) { out.arrays.push_back(&x); }
template <class Holder>
void add_leaf(BareArrays& out, NoPath, Holder& x) {
  out.arrays.push_back(&x.value);
}

template <class T, class Path, class Out>
void collect(T& node, const Path& path, Out& out);

template <class T, class Path, class Out>
void collect_map(T& node, const Path& path, Out& out) {
  for (auto& [key, item] : node) {
    note(out, std::hash<std::remove_cvref_t<decltype(key)>>()(key));
    if constexpr (std::convertible_to<decltype(key), std::string_view>)
      collect(item, join(path, key), out);
    else
      collect(item, join(path, std::to_string(key)), out);
  }
}

template <class T, class Path, class Out>
void collect_container(T& node, const Path& path, Out& out) {
  size_t i = 0;
  if constexpr (is_sequence<T>) {
    if constexpr (!is_static<typename T::value_type>) {
      note(out, node.size());
      for (auto& item : node) collect(item, join(path, i++), out);
    }
  } else if constexpr (is_optional<T>) {
    note(out, node.has_value());
    if (node) collect(*node, path, out);
  } else if constexpr (is_map<T>) {
    collect_map(node, path, out);
  } else if constexpr (is_variant<T>) {
    note(out, node.index());
    std::visit([&](auto& active) { collect(active, path, out); }, node);
  } else {
    std::apply([&](auto&... items) { (collect(items, join(path, i++), out), ...); }, node);
  }
}

template <class T>
inline constexpr auto field_names = boost::pfr::names_as_array<T>();

template <class T, class Path, class Out>
void collect_fields(T& node, const Path& path, Out& out) {
  boost::pfr::for_each_field(
      node, [&](auto& field, auto number) -> void { collect(field, join(path, field_names<T>[number]), out); });
}

template <class T, class Path, class Out>
void collect(T& node, const Path& path, Out& out) {
  if constexpr (is_leaf<T>) {
    add_leaf(out, path, node);
  } else if constexpr (is_static<T>) {
  } else if constexpr (is_container<T>) {
    collect_container(node, path, out);
  } else if constexpr (has_hook<T>) {
    node.visit_fields([&](std::string_view name, auto& field) { collect(field, join(path, name), out); });
  } else if constexpr (check_reflectable<T>()) {
    if constexpr (field_count<T> != 0) collect_fields(node, path, out);
  }
}

}  // namespace detail

// All arrays of a tree, in the order of its fields, with their paths below `path`.
template <class Tree>
Leaves leaves(Tree& tree, const std::string& path = "") {
  Leaves out;
  detail::collect(const_cast<std::remove_const_t<Tree>&>(tree), path, out);
  return out;
}
inline const Leaves& leaves(const Leaves& already) { return already; }

// The same arrays without paths.
template <class Tree>
BareArrays bare_arrays(Tree& tree) {
  BareArrays out;
  detail::collect(const_cast<std::remove_const_t<Tree>&>(tree), detail::NoPath(), out);
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

// A copy of the tree whose arrays are f(path, array); absent ones stay absent.
template <class Tree, class F>
Tree tree_map(F&& f, const Tree& tree) {
  Tree result = tree;
  for (Leaf& leaf : leaves(result))
    if (!leaf.value->is_absent()) *leaf.value = f(std::as_const(leaf.path), std::as_const(*leaf.value));
  return result;
}

// Two leaves that are one and the same array would be trained twice: an Error (bad_argument) that names both.
void check_distinct(const Leaves& leaves, const char* verb);

// Trees of one structure have the same paths in the same order. An Error (bad_argument) names the first that differs.
void check_same_structure(const Leaves& expected, const Leaves& given, const char* verb);

}  // namespace tessera::nn
