// The placing of one leaf, and of all.
#include "nn/filter_shard.h"

#include <fmt/format.h>

#include "sharding/device_put.h"

namespace tessera::nn::detail {

void shard_one(const Leaf& leaf, const NamedSharding& sharding) {
  try {
    *leaf.value = place_parameter(*leaf.value, sharding, leaf.path);
  } catch (const Error& error) {
    fail(error.kind(), "filter_shard", fmt::format("{}: {}", leaf.path, error.what()));
  }
}

void shard_alike(const Leaves& leaves, const NamedSharding& sharding) {
  check_distinct(leaves, "filter_shard");
  for (const Leaf& leaf : leaves)
    if (!leaf.value->is_absent()) shard_one(leaf, sharding);
}

void shard_by_names(const Leaves& leaves, const Layout& layout) {
  check_distinct(leaves, "filter_shard");
  for (const Leaf& leaf : leaves) {
    if (leaf.value->is_absent()) continue;
    *leaf.value = place_parameter(*leaf.value, layout, resolve(leaf, layout).spec, leaf.path);
  }
}

}  // namespace tessera::nn::detail

namespace tessera::nn {

Resolution resolve(const Leaf& leaf, const Layout& layout, std::string_view verb) {
  const Shape& shape = leaf.value->shape();
  const Axes axes = leaf.axes ? *leaf.axes : Axes(std::vector<AxisName>(shape.size(), none));
  if (!leaf.rules || leaf.rules->empty()) return layout.resolve(axes, shape, verb, leaf.path);
  return layout.resolve(*leaf.rules, axes, shape, verb, leaf.path);
}

}  // namespace tessera::nn
