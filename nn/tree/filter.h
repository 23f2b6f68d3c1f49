// Filters by kind, type, path and logical axis; filter, partition and combine.
#pragma once

#include <string>
#include <utility>

#include "nn/tree/tree.h"
#include "sharding/placement/path_pattern.h"

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

// A filter that ignores the path, so that it can also be called with a leaf alone.
template <bool (*test)(const Leaf&)>
struct LeafFilter {
  bool operator()(const Leaf& leaf) const { return test(leaf); }
  bool operator()(const std::string&, const Leaf& leaf) const { return test(leaf); }
};

// Any array that is not absent; recipes are taken.
inline constexpr LeafFilter<detail::is_present> is_array{};
// Arrays of a floating type that are not absent (eqx.is_inexact_array).
inline constexpr LeafFilter<detail::is_floating_leaf> is_inexact_array{};
// Leaves that are a Param, that are a Buffer.
inline constexpr LeafFilter<detail::is_param_leaf> is_param{};
inline constexpr LeafFilter<detail::is_buffer_leaf> is_buffer{};
// Arrays that are trained by default, with a gradient and optimizer state: floating ones that are not a Buffer.
inline constexpr LeafFilter<detail::is_trainable_leaf> is_trainable{};

Filter by_kind(Kind kind);  // leaves of this kind: Kind::param, Kind::buffer, ...

// Leaves that have a dim of this logical axis: by_axis("vocab").
Filter by_axis(std::string name);

// Leaves whose path matches the pattern: by_path("layers.*.mlp.**"), by_path("**.bias")
// (sharding/placement/path_pattern.h).
Filter by_path(std::string pattern);

// ---- filter, partition, combine -------------------------------------------------------------------------------------

namespace detail {
void keep(const Leaves& tree, const Filter& filter);
void keep_and_drop(const Leaves& kept, const Leaves& rest, const Filter& filter);
void fill_absent(const Leaves& result, const Leaves& other);
}  // namespace detail

// A copy of the tree in which the arrays that the filter does not take are absent.
template <class Tree>
Tree filter(Tree tree, const Filter& filter) {
  detail::keep(leaves(tree), filter);
  return tree;
}

// Two copies of the tree: one with what the filter takes, one with the rest. Each array is in one copy and absent from
// the other.
//   auto [trained, frozen] = nn::partition(model, nn::by_path("head.**"));
template <class Tree>
std::pair<Tree, Tree> partition(const Tree& tree, const Filter& filter) {
  std::pair<Tree, Tree> parts(tree, tree);
  detail::keep_and_drop(leaves(parts.first), leaves(parts.second), filter);
  return parts;
}

// The inverse of partition: each array comes from the first tree that has it, and is absent if none has. Numbers and
// other static fields come from the first tree. Error (invalid_argument): trees of different structures.
template <class Tree, class... Rest>
Tree combine(Tree tree, const Rest&... rest) {
  static_assert((std::is_same_v<Tree, Rest> && ...), "tessera: combine takes trees of one type.");
  (detail::fill_absent(leaves(tree), leaves(rest)), ...);
  return tree;
}

}  // namespace tessera::nn
