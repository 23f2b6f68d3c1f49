// filter_shard, which places a tree by rules, shardings or a function, and fsdp, which returns rules.
#pragma once

#include <concepts>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "nn/placement/resolve.h"
#include "nn/tree/tree.h"
#include "sharding/base/caller.h"
#include "sharding/base/error.h"
#include "sharding/placement/mesh_rules.h"
#include "sharding/placement/named_sharding.h"

namespace tessera::nn {

namespace detail {
template <class F>
concept ChoosesByArray = std::convertible_to<std::invoke_result_t<F&, const std::string&, const Array&>, NamedSharding>;
template <class F>
concept ChoosesByLeaf =
    !ChoosesByArray<F> && std::convertible_to<std::invoke_result_t<F&, const std::string&, const Leaf&>, NamedSharding>;
template <class F>
concept ChoosesSharding = ChoosesByArray<F> || ChoosesByLeaf<F>;
void shard_by_names(const Leaves& leaves, const MeshRules& mesh_rules);
void shard_alike(const Leaves& leaves, const NamedSharding& sharding);
// Places each leaf with its sharding; absent leaves have none.
void shard_each(const Leaves& leaves, const std::vector<std::optional<NamedSharding>>& shardings);
}  // namespace detail

// Returns a copy of the tree, placed by names: the mesh rules (a parameter's own rules first) turn each array's axes
// into a spec. Arrays without names follow the rules for ParamPattern, and are replicated if none applies.
// Lazy initializers are computed shard by shard: no device ever holds more than its own shard. Each array stores its
// path, for ledgers and errors.
// A rule for the name of a vector assigns its elements to pipeline stages: with {"layers", "pipe"} and S devices along
// "pipe", element i of L is placed on sub_mesh(mesh, "pipe", i * S / L). With interleaved("pipe", v), the elements are
// split into S * v blocks, and block i is on stage i mod S. The other rules give the sharding of its arrays there.
// Arrays outside such vectors are placed on the complete mesh, and the rule does not affect them.
// If the mesh spans several processes, all of them must call this function. They first check that they agree on the
// mesh, the rules and the arrays.
// Errors, with the parameter's path
//   unknown_axis: a name in no rule
//   not_divisible: a dimension that no rule divides; a vector with fewer elements than stages
//   rank_mismatch: more or fewer names than dimensions
//   invalid_argument: one array in two fields
//   inconsistent: processes do not agree; the message has the first difference
//   out_of_memory: a device is full; the message has the bytes of the largest arrays, and of FSDP's rules
template <class Tree>
[[nodiscard]] Tree filter_shard(Tree tree, const MeshRules& mesh_rules,
                                std::source_location where = std::source_location::current()) {
  const CallerScope caller(where);
  detail::shard_by_names(leaves(tree), mesh_rules);
  return tree;
}

// Places all arrays with one sharding, as eqx.filter_shard does: filter_shard(model, NamedSharding(mesh, P{})).
template <class Tree>
[[nodiscard]] Tree filter_shard(Tree tree, const NamedSharding& sharding,
                                std::source_location where = std::source_location::current()) {
  const CallerScope caller(where);
  detail::shard_alike(leaves(tree), sharding);
  return tree;
}

// Places each array with the sharding that a function chooses. A function that takes a Leaf also receives its kind and
// names:
//   filter_shard(model, [&](const std::string& path, const Array& x) { return NamedSharding(...); })
// Prefer rules where they suffice, because nn::explain can explain them (see fsdp).
template <class Tree, detail::ChoosesSharding Choose>
[[nodiscard]] Tree filter_shard(Tree tree, Choose choose,
                                std::source_location where = std::source_location::current()) {
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
// Diagnoses a common mistake: any other second argument.
template <class Tree, class Other>
  requires(!std::convertible_to<Other, MeshRules> && !std::convertible_to<Other, NamedSharding> &&
           !detail::ChoosesSharding<Other>)
auto filter_shard(const Tree&, const Other&) {
    static_assert(tessera::detail::dependent_false<Tree>,
                  "tessera: filter_shard takes a tree, and a MeshRules, a NamedSharding, or a function of path and "
                  "array that returns a NamedSharding: filter_shard(model, mesh_rules).");
}
template <class Tree>
void filter_shard(const Tree&, const Mesh&, const Rules&) {
  static_assert(tessera::detail::dependent_false<Tree>,
                "tessera: pass the mesh and the rules as one MeshRules: filter_shard(model, MeshRules(mesh, rules)).");
}

struct FsdpOptions {
  int64_t min_size = 1024;  // parameters with fewer elements (biases, scales of norms) are not sharded over `mesh_axis`
  // Rules by name for the dimensions of the batch, and for dimensions sharded over other mesh axes (tensor
  // parallelism). A dimension whose name is in no rule is not sharded, unless it is the longest one, which fsdp shards.
  Rules rules = {};
};

// Returns mesh rules that shard each parameter over `mesh_axis`, along the longest dimension that no other rule took
// and that the axis divides:
//   const MeshRules mesh_rules = nn::fsdp(mesh, "data", {.rules = {{"batch", "data"}, {"embed", replicated}}});
//   auto model = nn::filter_shard(Model::init(Key(0)), mesh_rules);
// The rules, in order:
//   1. the rules of options.rules that name a mesh axis
//   2. {ParamPattern{.min_size = n}, longest_dim(mesh_axis)}
//   3. the other rules of options.rules
//   4. {ParamPattern{}, replicated}
// Errors
//   unknown_axis: an axis that the mesh does not have
//   invalid_argument: a negative `min_size`
MeshRules fsdp(Mesh mesh, const std::string& mesh_axis, const FsdpOptions& options = {});

}  // namespace tessera::nn
