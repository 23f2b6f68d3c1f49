// state, update, split and merge: a module's arrays as an ordered map from path to Array, and back.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "nn/tree/filter.h"
#include "nn/tree/tree.h"

namespace tessera::nn {

// By path, in the order of the alphabet. A State is a tree itself: it can be placed, tabulated, mapped and saved.
using State = std::map<std::string, Array>;

namespace detail {

// What a place in a module takes.
struct Slot {
  std::string path;
  Shape shape;
  DType dtype;
};

std::vector<Slot> slots_of(const Leaves& tree, const Filter& filter);
State state_of(const Leaves& tree, const Filter& filter);
// One Error for all that does not fit; nothing is changed then.
void check_state(const std::vector<Slot>& slots, const State& state, const char* verb);
void write_state(const Leaves& tree, const State& state);

}  // namespace detail

// The arrays that are there, or those of them that the filter takes (nnx.state).
//   const nn::State statistics = nn::state(model, nn::is_buffer);
template <class Tree>
State state(const Tree& tree, const Filter& filter = {}) {
  return detail::state_of(leaves(tree), filter);
}

// The tree with the arrays of `state` in their places (nnx.update, but strict): exactly the arrays that are there and
// that the filter takes. An array on no mesh goes where the one that it replaces lies; others stay where they are.
// Error (bad_argument), which lists every array that is missing, that the tree does not have, and whose shape or
// element type differs. After an error the tree is what it was.
template <class Tree>
void update(Tree& tree, const State& state, const Filter& filter = {}) {
  const Leaves all = leaves(tree);
  detail::check_state(detail::slots_of(all, filter), state, "update");
  detail::write_state(all, state);
}

// What is left of a module without its arrays: its structure, its static fields, and which arrays it takes.
template <class Tree>
struct Definition {
  Tree tree;  // its arrays are absent
  std::vector<detail::Slot> slots;
};

// A module in two: auto [definition, state] = nn::split(model). nn::merge is the inverse; its Errors are
// update's. (nnx.split, nnx.merge.)
template <class Tree>
std::pair<Definition<Tree>, State> split(const Tree& tree) {
  return {Definition<Tree>{filter(tree, !Filter()), detail::slots_of(leaves(tree), {})}, state(tree)};
}
template <class Tree>
Tree merge(const Definition<Tree>& definition, const State& state) {
  detail::check_state(definition.slots, state, "merge");
  Tree tree = definition.tree;
  detail::write_state(leaves(tree), state);
  return tree;
}

}  // namespace tessera::nn
