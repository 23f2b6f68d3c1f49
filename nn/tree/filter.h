// Filters by kind, type, path and logical axis; filter, partition and combine.
#pragma once

#include <string>
#include <string_view>
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

// A filter that does not look at the path: called with a leaf alone, too.
template <bool (*test)(const Leaf&)>
struct LeafFilter {
  bool operator()(const Leaf& leaf) const { return test(leaf); }
  bool operator()(const std::string&, const Leaf& leaf) const { return test(leaf); }
};

// Any array that is there: neither absent nor filtered out. A recipe is.
inline constexpr LeafFilter<detail::is_present> is_array{};
// Of those, the floating ones (eqx.is_inexact_array).
inline constexpr LeafFilter<detail::is_floating_leaf> is_inexact_array{};
// What the tree holds as a Param, as a Buffer.
inline constexpr LeafFilter<detail::is_param_leaf> is_param{};
inline constexpr LeafFilter<detail::is_buffer_leaf> is_buffer{};
// What has a gradient and an optimizer's state where nothing else is said: floating arrays that are no Buffer.
inline constexpr LeafFilter<detail::is_trainable_leaf> is_trainable{};

Filter by_kind(Kind kind);  // what the tree holds as this kind: Kind::param, Kind::buffer, ...

// Leaves one of whose dims has this name: by_axis("vocab").
Filter by_axis(std::string name);

// Leaves whose path the pattern matches: by_path("layers.*.mlp.**"), by_path("**.bias")
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

// The tree in two: what the filter takes, and the rest. Each array is in one of them and absent from the other.
//   auto [trained, frozen] = nn::partition(model, nn::by_path("head.**"));
template <class Tree>
std::pair<Tree, Tree> partition(const Tree& tree, const Filter& filter) {
  std::pair<Tree, Tree> parts(tree, tree);
  detail::keep_and_drop(leaves(parts.first), leaves(parts.second), filter);
  return parts;
}

// Partition's inverse: each array from the first of the trees that has it; absent where none has. Numbers and other
// static fields are the first tree's. Error (bad_argument): trees of different structures.
template <class Tree, class... Rest>
Tree combine(Tree tree, const Rest&... rest) {
  static_assert((std::is_same_v<Tree, Rest> && ...), "tessera: combine takes trees of one type.");
  (detail::fill_absent(leaves(tree), leaves(rest)), ...);
  return tree;
}

}  // namespace tessera::nn
