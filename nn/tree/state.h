// state, update, split and merge: a module's arrays as an ordered map from path to array, and back.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "nn/tree/filter.h"
#include "nn/tree/tree.h"

namespace tessera::nn {

// Maps paths to arrays, in alphabetical order. A State is itself a tree: it can be placed, tabulated, mapped and saved.
using State = std::map<std::string, Array>;

namespace detail {

// An array that a module expects.
struct Slot {
  std::string path;
  Shape shape;
  DType dtype;
};

std::vector<Slot> slots_of(const Leaves& tree, const Filter& filter);
State state_of(const Leaves& tree, const Filter& filter);
// Throws one Error (invalid_argument) that lists every array that does not fit. Changes nothing.
void check_state(const std::vector<Slot>& slots, const State& state, const char* verb);
void write_state(const Leaves& tree, const State& state);

}  // namespace detail

// Returns the arrays that are not absent and that the filter selects (nnx.state).
//   const nn::State statistics = nn::state(model, nn::is_buffer);
template <class Tree>
State state(const Tree& tree, const Filter& filter = {}) {
  return detail::state_of(leaves(tree), filter);
}

// Writes the arrays of `state` into the tree, like nnx.update but strict: `state` must have exactly the arrays of the
// tree that are not absent and that the filter selects. An array without a mesh is placed like the array that it
// replaces; others keep their sharding. After an error the tree is unchanged. Error (invalid_argument), which lists
// every array that is missing, unknown to the tree, or has the wrong shape or element type.
template <class Tree>
void update(Tree& tree, const State& state, const Filter& filter = {}) {
  const Leaves all = leaves(tree);
  detail::check_state(detail::slots_of(all, filter), state, "update");
  detail::write_state(all, state);
}

// Holds a module without its arrays: its structure, its static fields, and the arrays that it expects.
template <class Tree>
struct Definition {
  Tree tree;  // its arrays are absent
  std::vector<detail::Slot> slots;
};

// Splits a module in two (nnx.split): auto [definition, state] = nn::split(model). nn::merge is the inverse (nnx.merge)
// and has the errors of nn::update.
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
