// Filters by kind, type, path and logical axis, and the functions filter, partition and combine.
#pragma once

#include <string>
#include <utility>

#include "nn/tree/tree.h"
#include "sharding/base/text.h"

namespace tessera::nn {

// ---- ready filters --------------------------------------------------------------------------------------------------
//   is_param && !by_path("**.bias")
//   by_path("layers.*.mlp.**") || by_axis("vocab")

namespace detail {
bool is_present(const Leaf& leaf);
bool is_floating_leaf(const Leaf& leaf);
bool is_param_leaf(const Leaf& leaf);
bool is_buffer_leaf(const Leaf& leaf);
bool is_trainable_leaf(const Leaf& leaf);
}  // namespace detail

// Wraps a test of a leaf as a filter that ignores the path, so that you can also call it with a leaf alone.
template <bool (*test)(const Leaf&)>
struct LeafFilter {
  bool operator()(const Leaf& leaf) const { return test(leaf); }
  bool operator()(const std::string&, const Leaf& leaf) const { return test(leaf); }
};

// Selects arrays that are not absent, lazy initializers included.
inline constexpr LeafFilter<detail::is_present> is_array{};
// Selects arrays of a floating type that are not absent (eqx.is_inexact_array).
inline constexpr LeafFilter<detail::is_floating_leaf> is_inexact_array{};
// Select leaves that are a Param, and leaves that are a Buffer.
inline constexpr LeafFilter<detail::is_param_leaf> is_param{};
inline constexpr LeafFilter<detail::is_buffer_leaf> is_buffer{};
// Selects arrays that are trained by default, with a gradient and optimizer state: floating arrays outside Buffers.
inline constexpr LeafFilter<detail::is_trainable_leaf> is_trainable{};

Filter by_kind(Kind kind);  // selects leaves of this kind: Kind::param, Kind::buffer, ...

// Returns a filter that selects leaves with a dimension of this logical axis: by_axis("vocab").
Filter by_axis(std::string name);

// Returns a filter that selects leaves whose path matches the pattern: by_path("layers.*.mlp.**"), by_path("**.bias").
// `path_matches` in sharding/base/text.h documents the patterns.
Filter by_path(std::string pattern);

// ---- filter, partition, combine -------------------------------------------------------------------------------------

namespace detail {
void keep(const Leaves& tree, const Filter& filter);
void keep_and_drop(const Leaves& kept, const Leaves& rest, const Filter& filter);
void fill_absent(const Leaves& result, const Leaves& other);
}  // namespace detail

// Returns a copy of the tree in which the arrays that the filter rejects are absent.
template <class Tree>
Tree filter(Tree tree, const Filter& filter) {
  detail::keep(leaves(tree), filter);
  return tree;
}

// Returns two copies of the tree: one with the arrays that the filter selects, one with the others. Each array is
// present in one copy and absent from the other.
//   auto [trained, frozen] = nn::partition(model, nn::by_path("head.**"));
template <class Tree>
std::pair<Tree, Tree> partition(const Tree& tree, const Filter& filter) {
  std::pair<Tree, Tree> parts(tree, tree);
  detail::keep_and_drop(leaves(parts.first), leaves(parts.second), filter);
  return parts;
}

// Inverts partition: each array comes from the first tree that has it, and is absent if no tree has it. Numbers and
// other static fields come from the first tree. Error (invalid_argument): trees of different structures.
template <class Tree, class... Rest>
Tree combine(Tree tree, const Rest&... rest) {
  static_assert((std::is_same_v<Tree, Rest> && ...), "tessera: the trees of combine must have the same type.");
  (detail::fill_absent(leaves(tree), leaves(rest)), ...);
  return tree;
}

}  // namespace tessera::nn
