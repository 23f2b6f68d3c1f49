// filter_shard: every array of a tree placed where its names, its path or one sharding for all say.
#pragma once

#include <concepts>
#include <optional>
#include <source_location>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "nn/tree/tree.h"
#include "sharding/diagnostics/caller.h"
#include "sharding/placement/layout.h"
#include "sharding/placement/named_sharding.h"

namespace tessera::nn {

// The spec that a layout gives to a leaf, and why. `verb` begins an error's message.
Resolution resolve(const Leaf& leaf, const Layout& layout, std::string_view verb = "filter_shard");

namespace detail {
template <class F>
concept ChoosesByArray = std::convertible_to<std::invoke_result_t<F&, const std::string&, const Array&>, NamedSharding>;
template <class F>
concept ChoosesByLeaf =
    !ChoosesByArray<F> && std::convertible_to<std::invoke_result_t<F&, const std::string&, const Leaf&>, NamedSharding>;
void shard_by_names(const Leaves& leaves, const Layout& layout);
void shard_alike(const Leaves& leaves, const NamedSharding& sharding);
// One sharding for each leaf; for absent ones none.
void shard_each(const Leaves& leaves, const std::vector<std::optional<NamedSharding>>& shardings);
}  // namespace detail

// A copy of the tree, placed by names: the layout's rules (a parameter's own first) turn each array's axes into a spec;
// arrays without names follow the rules for Arrays, and are replicated where there is none. Recipes are carried out
// block by block: no device ever holds more than its part. Paths are stamped on the arrays, for ledgers and errors.
// Where the mesh lies across processes, all of them call it, and agree first on the mesh, the rules and the arrays.
// Errors, with the parameter's path: a name in no rule (unknown_axis), a dim that no rule divides (uneven), names that
// are not as many as the dims (rank_mismatch), one array in two places (bad_argument). Processes
// that do not agree: inconsistent, with the first thing that differs.
template <class Tree>
Tree filter_shard(Tree tree, const Layout& layout, std::source_location where = std::source_location::current()) {
  const CallerScope caller(where);
  detail::shard_by_names(leaves(tree), layout);
  return tree;
}

// All alike, as eqx.filter_shard does: filter_shard(model, NamedSharding(mesh, P{})).
template <class Tree>
Tree filter_shard(Tree tree, const NamedSharding& sharding,
                  std::source_location where = std::source_location::current()) {
  const CallerScope caller(where);
  detail::shard_alike(leaves(tree), sharding);
  return tree;
}

// By path or size, or by all that is known of the leaf (its kind and names) where the function takes a Leaf:
//   filter_shard(model, [&](const std::string& path, const Array& x) { return NamedSharding(...); })
// What rules can say is better said by rules, which explain themselves (see fsdp.h).
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

}  // namespace tessera::nn
