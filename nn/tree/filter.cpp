// Predicates of the filters, and the functions that remove arrays from a tree and restore them.
#include "nn/tree/filter.h"

#include <algorithm>

#include "sharding/placement/dtype.h"

namespace tessera::nn {

namespace detail {

bool is_present(const Leaf& leaf) { return !leaf.value->is_absent(); }
bool is_floating_leaf(const Leaf& leaf) { return is_present(leaf) && is_floating(leaf.value->dtype()); }
bool is_param_leaf(const Leaf& leaf) { return leaf.kind == Kind::param; }
bool is_buffer_leaf(const Leaf& leaf) { return leaf.kind == Kind::buffer; }
bool is_trainable_leaf(const Leaf& leaf) { return is_floating_leaf(leaf) && !is_buffer_leaf(leaf); }

void keep(const Leaves& tree, const Filter& filter) {
  for (const Leaf& leaf : tree)
    if (!filter(leaf)) *leaf.value = Array();
}

void keep_and_drop(const Leaves& kept, const Leaves& rest, const Filter& filter) {
  for (size_t i = 0; i < kept.size(); ++i) *(filter(kept[i]) ? rest : kept)[i].value = Array();
}

void fill_absent(const Leaves& result, const Leaves& other) {
  check_same_structure(result, other, "combine");
  for (size_t i = 0; i < result.size(); ++i)
    if (result[i].value->is_absent()) *result[i].value = *other[i].value;
}

}  // namespace detail

Filter by_kind(Kind kind) {
  return [kind](const std::string&, const Leaf& leaf) { return leaf.kind == kind; };
}

Filter by_axis(std::string name) {
  return [name = std::move(name)](const std::string&, const Leaf& leaf) {
    return leaf.axes && std::any_of(leaf.axes->begin(), leaf.axes->end(),
                                    [&](const AxisName& axis) { return axis.name() == name && !axis.is_mesh_axis(); });
  };
}

Filter by_path(std::string pattern) {
  return [pattern = std::move(pattern)](const std::string& path, const Leaf&) { return path_matches(path, pattern); };
}

}  // namespace tessera::nn
