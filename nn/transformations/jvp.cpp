// Checks directions, and computes inner products of trees.
#include "nn/transformations/jvp.h"

#include <algorithm>
#include <string>
#include <vector>

#include "sharding/array/array_impl.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/shard_map/collectives.h"

namespace tessera::nn::detail {

void check_direction(const Leaves& tree, const Leaves& direction, const char* verb) {
  check_same_structure(tree, direction, verb);
  bool is_zero = true;
  for (size_t i = 0; i < tree.size(); ++i) {
    if (!is_trainable(tree[i]) || direction[i].value->is_absent()) continue;
    const Array &x = *tree[i].value, &tangent = *direction[i].value;
    if (tangent.shape() != x.shape() || tangent.dtype() != x.dtype())
      fail(tangent.shape() != x.shape() ? ErrorKind::shape_mismatch : ErrorKind::dtype_mismatch, verb,
           "{}{}the direction has {}, expected the shape and element type of {}. Make it from the tree, for example "
           "with tree_map.",
           tree[i].path, tree[i].path.empty() ? "" : ": ", tangent.type_string(), x.type_string());
    is_zero = false;
  }
  if (is_zero)
    fail(ErrorKind::missing_array, verb,
         "the direction has no array that can be differentiated, expected at least one. Filter both trees in the same "
         "way.");
}

namespace {

bool is_recorded(const Leaf& leaf) {
  return !leaf.value->is_absent() && tessera::detail::wants_gradient(*leaf.value->impl());
}

// Sums over the devices between which x differs inside a shard_map, so that terms which do not differ count once.
Array over_devices(const Array& x) {
  const tessera::detail::Type* type = x.impl()->type;
  std::vector<std::string> axes;
  for (size_t i = 0; type->varying >> i; ++i)
    if (type->varying >> i & 1) axes.push_back(type->mesh->axes[i].name);
  return axes.empty() ? x : psum(x, axes);
}

}  // namespace

Array inner_product(const Leaves& computed, const Leaves& constants, const Leaves& x) {
  Array total;
  const auto add = [&](const Array& y) {
    const Array term = over_devices(sum(y));
    total = total.is_absent() ? term : total + term;
  };
  for (size_t i = 0; i < computed.size(); ++i)
    if (is_trainable(computed[i]) && is_trainable(constants[i])) add(*computed[i].value * *constants[i].value);
  if (std::none_of(computed.begin(), computed.end(), is_recorded))
    add(0 * *std::find_if(x.begin(), x.end(), is_recorded)->value);
  return total;
}

void make_cotangents(const Leaves& results) {
  if (std::none_of(results.begin(), results.end(), is_trainable))
    fail(ErrorKind::no_gradient, "jvp", "the function returns no floating array, expected one with a derivative.");
  for (const Leaf& leaf : results)
    if (!leaf.value->is_absent()) *leaf.value = stop_gradient(*leaf.value);
}

}  // namespace tessera::nn::detail
