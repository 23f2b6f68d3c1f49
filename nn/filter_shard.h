// filter_shard: every array of a tree placed where its names, its path or one sharding for all say.
#pragma once

#include <concepts>
#include <source_location>
#include <string_view>
#include <type_traits>
#include <utility>

#include "nn/tree.h"
#include "sharding/caller.h"
#include "sharding/layout.h"
#include "sharding/named_sharding.h"

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
void shard_one(const Leaf& leaf, const NamedSharding& sharding);
}  // namespace detail

// A copy of the tree, placed by names: the layout's rules (a parameter's own first) turn each array's axes into a spec;
// arrays without names follow the rules for Arrays, and are replicated where there is none. Recipes are carried out
// block by block: no device ever holds more than its part. Paths are stamped on the arrays, for ledgers and errors.
// Errors, with the parameter's path: a name in no rule (unknown_axis), a dim that no rule divides (uneven), names that
// are not as many as the dims (rank_mismatch), one array in two places (bad_argument).
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
  check_distinct(all, "filter_shard");
  for (const Leaf& leaf : all)
    if (!leaf.value->is_absent()) {
      if constexpr (detail::ChoosesByArray<Choose>)
        detail::shard_one(leaf, choose(leaf.path, std::as_const(*leaf.value)));
      else
        detail::shard_one(leaf, choose(leaf.path, leaf));
    }
  return tree;
}

}  // namespace tessera::nn
