// Scalars: the values of a tree that are not arrays (counters, rates, keys, strings), with paths.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/tree/tree_parts.h"

namespace tessera::nn {

// One scalar of a tree: a number of `size` bytes, a std::string or a Key. The pointer points into the tree.
struct Scalar {
  std::string path;  // optimizer.state.1.count
  ScalarKind kind = ScalarKind::integer;
  int size = 8;
  void* value = nullptr;
  bool (*has_enumerator)(int64_t value) = nullptr;  // null unless an enum

  // Returns 7, 0.1, true, "gelu", a key as [0, 42]; "nan", "inf" or "-inf" if not finite. set_json restores the exact
  // value.
  std::string to_json() const;
  // Sets the value from JSON. Error (invalid_file) "[restore] path: given, expected": the text has the wrong type, the
  // number does not fit, or it is not an enumerator of the enum.
  void set_json(std::string_view text) const;
};

using Scalars = std::vector<Scalar>;

namespace detail {
Scalars scalars_of(const Parts& parts);
}

// Returns all scalars of a tree, in the order of its fields, without axes, rules and specs. Error (invalid_argument):
// the value of an enum is not one of its enumerators, or one above 63.
template <class Tree>
Scalars scalars(Tree& tree, const std::string& path = "") {
  return detail::scalars_of(detail::parts_of(tree, path));
}

// Complete state of one or more trees: arrays and scalars. A list of arrays alone converts to it.
struct NamedState {
  Leaves arrays;
  Scalars scalars;

  NamedState() = default;
  NamedState(Leaves given, Scalars others = {}) : arrays(std::move(given)), scalars(std::move(others)) {}
};

// Returns named(...) with the scalars: named_state("model", model, "optimizer", optimizer). Checkpoints take a
// NamedState because an optimizer's counters are scalars, not arrays.
template <class Tree, class... Rest>
NamedState named_state(const std::string& name, Tree& tree, Rest&&... rest) {
  NamedState all(leaves(tree, name), scalars(tree, name));
  if constexpr (sizeof...(Rest) > 0) {
    NamedState others = named_state(std::forward<Rest>(rest)...);
    for (Leaf& leaf : others.arrays) all.arrays.push_back(std::move(leaf));
    for (Scalar& scalar : others.scalars) all.scalars.push_back(std::move(scalar));
  }
  return all;
}

}  // namespace tessera::nn
