// filter_shard: places each array of a tree by rules, by one sharding, or by a function; fsdp: rules that shard all.
#pragma once

#include <concepts>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "nn/tree/tree.h"
#include "sharding/base/caller.h"
#include "sharding/base/dependent_false.h"
#include "sharding/placement/mesh_rules.h"
#include "sharding/placement/named_sharding.h"

namespace tessera::nn {

// The spec that mesh rules give to a leaf, and why. `verb` begins the message of an error.
RuleResolution resolve(const Leaf& leaf, const MeshRules& mesh_rules, std::string_view verb = "filter_shard");

namespace detail {
template <class F>
concept ChoosesByArray = std::convertible_to<std::invoke_result_t<F&, const std::string&, const Array&>, NamedSharding>;
template <class F>
concept ChoosesByLeaf =
    !ChoosesByArray<F> && std::convertible_to<std::invoke_result_t<F&, const std::string&, const Leaf&>, NamedSharding>;
void shard_by_names(const Leaves& leaves, const MeshRules& mesh_rules);
void shard_alike(const Leaves& leaves, const NamedSharding& sharding);
// One sharding for each leaf, none for absent ones.
void shard_each(const Leaves& leaves, const std::vector<std::optional<NamedSharding>>& shardings);
}  // namespace detail

// A copy of the tree, placed by names: the mesh rules' rules (a parameter's own first) turn each array's axes into a
// spec. Arrays without names follow the rules for ParamPattern, and are replicated if none applies. Recipes are
// computed shard by shard: no device ever holds more than its own shard. Each array is stamped with its path, for
// ledgers and errors. A rule for the name of a vector deals its elements out to stages: with {"layers", "pipe"},
// element i of L is placed on sub_mesh(mesh, "pipe", i * S / L) of the S along "pipe", and the other rules place its
// arrays there. Arrays outside such vectors are on the whole mesh, as if the rule were not there. If the mesh spans
// several processes, all of them must call this; they first check that they agree on the mesh, the rules and the
// arrays. Errors, with the parameter's path: a name in no rule (unknown_axis), a dim that no rule divides
// (not_divisible), more or fewer names than dims (rank_mismatch), a vector with fewer elements than stages
// (not_divisible), one array in two places (invalid_argument). If processes do not agree: inconsistent, with the first
// difference.
template <class Tree>
[[nodiscard]] Tree filter_shard(Tree tree, const MeshRules& mesh_rules,
                                std::source_location where = std::source_location::current()) {
  const CallerScope caller(where);
  detail::shard_by_names(leaves(tree), mesh_rules);
  return tree;
}

// All arrays with one sharding, as eqx.filter_shard does: filter_shard(model, NamedSharding(mesh, P{})).
template <class Tree>
[[nodiscard]] Tree filter_shard(Tree tree, const NamedSharding& sharding,
                                std::source_location where = std::source_location::current()) {
  const CallerScope caller(where);
  detail::shard_alike(leaves(tree), sharding);
  return tree;
}

// With a function that chooses the sharding of each array. A function that takes a Leaf also sees its kind and names:
//   filter_shard(model, [&](const std::string& path, const Array& x) { return NamedSharding(...); })
// Prefer rules where they suffice, since nn::explain can explain them (see fsdp).
template <class Tree, class Choose>
requires(detail::ChoosesByArray<Choose> || detail::ChoosesByLeaf<Choose>) Tree
    filter_shard(Tree tree, Choose choose, std::source_location where = std::source_location::current()) {
  const CallerScope caller(where);
  const Leaves all = leaves(tree);
  std::vector<std::optional<NamedSharding>> chosen;
  for (const Leaf& leaf : all) {
    if (leaf.value->is_absent())
      chosen.emplace_back();
    else if constexpr (detail::ChoosesByArray<Choose>)
      chosen.push_back(choose(leaf.path, std::as_const(*leaf.value)));
    else
      chosen.push_back(choose(leaf.path, leaf));
  }
  detail::shard_each(all, chosen);
  return tree;
}
// A mistake: anything else.
template <class Tree, class Other>
  requires(!std::convertible_to<Other, MeshRules> && !std::convertible_to<Other, NamedSharding> &&
           !detail::ChoosesByArray<Other> && !detail::ChoosesByLeaf<Other>)
auto filter_shard(const Tree&, const Other&) {
    static_assert(
        tessera::detail::dependent_false<Tree>,
        "tessera: filter_shard takes a tree and a MeshRules, a NamedSharding, or a function of path and array "
        "that returns a NamedSharding: filter_shard(model, mesh_rules).");
}
template <class Tree>
void filter_shard(const Tree&, const Mesh&, const Rules&) {
  static_assert(tessera::detail::dependent_false<Tree>,
                "tessera: a mesh and rules are one MeshRules: filter_shard(model, MeshRules(mesh, rules)).");
}

struct FsdpOptions {
  int64_t min_size = 1024;  // a parameter of fewer elements stays whole on every device: biases, scales of norms
  // Rules by name for the dims of the batch, and for dims that other mesh axes divide first (tensor parallelism). A dim
  // whose name is not here stays whole, unless it is the longest dim, which fsdp divides.
  Rules rules = {};
};

// Returns mesh rules that shard each parameter over `mesh_axis`, along the longest dim that is still free and that
// the axis divides:
//   const MeshRules mesh_rules = nn::fsdp(mesh, "data", {.rules = {{"batch", "data"}, {"embed", replicated}}});
//   auto model = nn::filter_shard(Model::init(Key(0)), mesh_rules);
// Its rules, in this order: those of options.rules that name a mesh axis, {ParamPattern{.min_size = n},
// longest_dim(mesh_axis)}, the others of options.rules, {ParamPattern{}, replicated}. Errors: an axis that the mesh
// does not have (unknown_axis).
MeshRules fsdp(Mesh mesh, const std::string& mesh_axis, const FsdpOptions& options = {});

}  // namespace tessera::nn
