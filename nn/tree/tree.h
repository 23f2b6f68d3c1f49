// Trees (JAX's pytrees), which are nested structs, vectors, optionals, ... with arrays as leaves, and walks over them.
#pragma once

#include <array>
#include <concepts>
#include <functional>
#include <memory>
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
#include "sharding/base/error.h"
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

// Holds the arrays of a tree without paths, in the order of its leaves. The walk takes a few nanoseconds per array, so
// every step can afford it. `structure` hashes the sizes of vectors, the keys of maps, ...: trees of one type with
// equal `structure` have equal paths.
struct BareArrays {
  std::vector<Array*> arrays;
  size_t structure = 0;
};

// Adds one property that the type does not determine (a size, a key, an alternative) to the hash `structure`.
inline size_t structure_with(size_t structure, size_t choice) { return structure * 1099511628211u + choice + 1; }

// Wraps a predicate on the leaves of a tree. Any function of (path, leaf) or of (path, array) converts to it:
//   [](const std::string& path, const Array& x) { return x.ndim() > 1; }
// A default-constructed Filter selects every leaf. Combine filters with &&, || and !. nn/tree/filter.h has ready-made
// ones.
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

// The possible parts of a module or of any other tree:
//   leaves      Param, Buffer, Array, NamedArray
//   structs     aggregates: public fields, no base class, no virtual function, no constructor
//   containers  vector, array (not of structs), optional, pair, tuple, map, variant (its active alternative)
//   static      numbers, enums, strings, keys, axes: part of the tree, but not leaves
//   classes     with the hook `template <class Visit> void visit_fields(Visit&& visit)`, which calls
//               visit("name", field) for each field
// Any other type fails to compile with a one-sentence message.

namespace detail {

inline std::string join(const std::string& path, std::string_view name) {
  return path.empty() ? std::string(name) : path + "." + std::string(name);
}
// Returns true if `path` is `top` or below it; all paths are below "".
bool is_below(std::string_view path, std::string_view top);

// Position of a walk: a name or a number below another Place, which must outlive it on the stack. The dotted path is
// composed only when path() is called.
class Place {
 public:
  explicit Place(std::string_view root = {}) : name_(root) {}
  Place(const Place& above, std::string_view name) : above_(&above), name_(name) {}
  Place(const Place& above, size_t number) : above_(&above), number_(number), is_number_(true) {}
  std::string path() const;
  std::string_view name() const { return name_; }  // empty for a number

 private:
  const Place* above_ = nullptr;
  std::string_view name_;
  size_t number_ = 0;
  bool is_number_ = false;
};

// True if T is a static value, which is not walked and is not an array: a number, a string, a vector of numbers.
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
                  "tessera: a module cannot have a std::array of modules. Use std::vector.");
}

template <class T>
inline constexpr auto field_names = boost::pfr::names_as_array<T>();

// True if a tree of type T can be walked; otherwise a compile-time error. Functions that copy a tree check
// this first; otherwise the compiler would report the copy.
template <class T>
constexpr bool check_tree() {
  if constexpr (is_leaf<T> || is_value<T>() || has_hook<T>)
    return true;
  else if constexpr (is_sequence<T> || is_optional<T>)
    return check_tree<typename T::value_type>();
  else if constexpr (is_container<T>)
    return true;
  else if constexpr (!check_reflectable<T>())
    return false;
  else
    return []<size_t... I>(std::index_sequence<I...>) {
      return (check_tree<boost::pfr::tuple_element_t<I, T>>() && ...);
    }
  (std::make_index_sequence<field_count<T>>());
}

// Returns the address of each field. Compiled once per struct; the code that uses it is compiled once per walk.
template <class T>
std::array<void*, field_count<T>> addresses_of_fields(T& node) {
  std::array<void*, field_count<T>> addresses;
  size_t i = 0;
  boost::pfr::for_each_field(node, [&](auto& field) { addresses[i++] = std::addressof(field); });
  return addresses;
}

// Walks a part that is one level deeper.
template <class Visit>
struct StepDown {
  const Place& place;
  Visit& visit;
  template <class Step, class T>
  void operator()(Step step, T& part) const;
};

// Calls visit(part, place) for every part of a tree in order: arrays, static values, structs and containers. A struct
// or container comes before its parts.
template <class T, class Visit>
void walk(T& node, const Place& place, Visit& visit) {
  const StepDown<Visit> under{place, visit};
  visit(node, place);
  size_t i = 0;
  if constexpr (is_leaf<T> || is_value<T>()) {
    return;
  } else if constexpr (is_sequence<T>) {
    check_elements<T>();
    for (auto& item : node) under(i++, item);
  } else if constexpr (is_optional<T>) {
    if (node) walk(*node, place, visit);
  } else if constexpr (is_map<T>) {
    for (auto& [key, item] : node)
      if constexpr (std::convertible_to<decltype(key), std::string_view>)
        under(std::string_view(key), item);
      else
        under(std::string_view(std::to_string(key)), item);
  } else if constexpr (is_variant<T>) {
    std::visit([&](auto& active) { walk(active, place, visit); }, node);
  } else if constexpr (is_container<T>) {
    std::apply([&](auto&... items) { (under(i++, items), ...); }, node);
  } else if constexpr (has_hook<T>) {
    node.visit_fields(under);
  } else if constexpr (check_reflectable<T>()) {
    if constexpr (field_count<T> != 0)
      [&]<size_t... I>(const std::array<void*, sizeof...(I)>& fields, std::index_sequence<I...>) {
        (under(std::string_view(field_names<T>[I]), *static_cast<boost::pfr::tuple_element_t<I, T>*>(fields[I])), ...);
      }
    (addresses_of_fields(node), std::make_index_sequence<field_count<T>>());
  }
}

template <class Visit>
template <class Step, class T>
void StepDown<Visit>::operator()(Step step, T& part) const {
  walk(part, Place(place, step), visit);
}

// Walks a const tree without const, so a visitor of a const tree must not write to it.
template <class Tree, class Visit>
void walk_all(Tree& tree, Visit&& visit, std::string_view root = "") {
  walk(const_cast<std::remove_const_t<Tree>&>(tree), Place(root), visit);
}

inline Leaf leaf_of(Array& x) { return {"", &x}; }
inline Leaf leaf_of(NamedArray& x) { return {"", &x.value, Kind::named_array, &x.axes}; }
inline Leaf leaf_of(Param& x) { return {"", &x.value, Kind::param, &x.axes, &x.rules}; }
inline Leaf leaf_of(Buffer& x) { return {"", &x.value, Kind::buffer, &x.axes}; }

struct LeafCollector {
  Leaves leaves;
  template <class T>
  void operator()(T& part, const Place& place) {
    if constexpr (is_leaf<T>) {
      leaves.push_back(leaf_of(part));
      leaves.back().path = place.path();
    }
  }
};

// Hashes the properties of a container that its type does not determine: its size, its keys, its alternative.
template <class T>
size_t structure_of(const T& container) {
  if constexpr (is_sequence<T>) {
    return container.size();
  } else if constexpr (is_optional<T>) {
    return container.has_value();
  } else if constexpr (is_variant<T>) {
    return container.index();
  } else if constexpr (is_map<T>) {
    size_t keys = container.size();
    for (const auto& [key, item] : container)
      keys = structure_with(keys, std::hash<std::remove_cvref_t<decltype(key)>>()(key));
    return keys;
  } else {
    return 0;
  }
}

struct BareCollector {
  BareArrays bare;
  template <class T>
  void operator()(T& part, const Place&) {
    if constexpr (is_leaf<T>)
      bare.arrays.push_back(leaf_of(part).value);
    else if constexpr (is_container<T> && !is_value<T>())
      bare.structure = structure_with(bare.structure, structure_of(part));
  }
};

}  // namespace detail

// Returns all arrays of a tree, in the order of its fields, with their paths below `path`.
template <class Tree>
Leaves leaves(Tree& tree, const std::string& path = "") {
  detail::LeafCollector collector;
  detail::walk_all(tree, collector, path);
  return std::move(collector.leaves);
}
inline const Leaves& leaves(const Leaves& already) { return already; }

// Returns the same arrays without paths.
template <class Tree>
BareArrays bare_arrays(Tree& tree) {
  detail::BareCollector collector;
  detail::walk_all(tree, collector);
  return std::move(collector.bare);
}

// Returns the arrays of several trees, each below its own name: named("model", model, "optimizer", optimizer).
template <class Tree, class... Rest>
Leaves named(const std::string& name, Tree& tree, Rest&&... rest) {
  Leaves all = leaves(tree, name);
  if constexpr (sizeof...(Rest) > 0)
    for (Leaf& leaf : named(std::forward<Rest>(rest)...)) all.push_back(std::move(leaf));
  return all;
}

// ---- map, fold ------------------------------------------------------------------------------------------------------

// Throws Error (invalid_argument) with both paths if two leaves are the same array, which would be trained twice.
void check_distinct(const Leaves& leaves, const char* verb);

// Throws Error (invalid_argument) with the first differing path unless both trees have the same paths in the same
// order.
void check_same_structure(const Leaves& expected, const Leaves& given, const char* verb);

namespace detail {

// Throws Error (missing_array) if the i-th array of this tree is absent although the first tree has it.
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

// Returns a copy of the tree with every array replaced by f(path, array). Absent arrays stay absent. With more trees of
// the same structure, f receives the arrays at one path: f(path, x, y, ...). The rest of the result comes from the
// first tree.
// Errors, with the first path
//   invalid_argument: trees of different structures
//   missing_array: an array that only the first tree has
template <class F, class Tree, class... Rest>
Tree tree_map_with_path(F&& f, const Tree& tree, const Rest&... rest) {
  return detail::map_leaves("tree_map_with_path", tree, f, rest...);
}

namespace detail {
template <class Tree>
using ArrayOf = const Array&;
}  // namespace detail

// Maps like tree_map_with_path, with f(x, y, ...) or f(path, x, y, ...).
//   const Model mean = nn::tree_map([](const Array& x, const Array& y) { return (x + y) / 2; }, a, b);
template <class F, class Tree, class... Rest>
Tree tree_map(F&& f, const Tree& tree, const Rest&... rest) {
  using detail::ArrayOf;
  constexpr bool takes_path = std::is_invocable_r_v<Array, F&, const std::string&, const Array&, ArrayOf<Rest>...>;
  constexpr bool takes_arrays = std::is_invocable_r_v<Array, F&, const Array&, ArrayOf<Rest>...>;
  static_assert(takes_path || takes_arrays,
                "tessera: the function must take one Array of each tree, and return an Array.");
  const auto call = [&](const std::string& path, const auto&... x) {
    if constexpr (takes_path) return Array(f(path, x...));
    if constexpr (takes_arrays && !takes_path) return Array(f(x...));
    return Array();
  };
  return detail::map_leaves("tree_map", tree, call, rest...);
}

// Returns the arrays of a tree that are not absent.
template <class Tree>
std::vector<Array> tree_leaves(const Tree& tree) {
  std::vector<Array> result;
  for (const Array* x : bare_arrays(tree).arrays)
    if (!x->is_absent()) result.push_back(*x);
  return result;
}

// Folds the arrays that are not absent by value = f(value, array):
//   nn::tree_reduce(sum_of_squares, model, zeros({}))
template <class F, class Tree, class Value>
Value tree_reduce(F&& f, const Tree& tree, Value value) {
  for (const Array* x : bare_arrays(tree).arrays)
    if (!x->is_absent()) value = f(std::move(value), *x);
  return value;
}

}  // namespace tessera::nn
