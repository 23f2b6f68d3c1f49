// The placing of one leaf, and of all.
#include "nn/filter_shard.h"

#include <fmt/format.h>

#include "sharding/consensus.h"
#include "sharding/device_put.h"

namespace tessera::nn::detail {

namespace {

// What cannot be placed is filter_shard's error, with the path: "[device_put] dim 0 ..." becomes "dim 0 ...".
template <class Place>
void place(const Leaf& leaf, const Place& placed) {
  try {
    *leaf.value = placed();
  } catch (const Error& error) {
    const std::string_view text = error.what();
    const size_t verb = text.find("] ");
    fail(error.kind(), "filter_shard",
         fmt::format("{}: {}", leaf.path, text.substr(verb == std::string_view::npos ? 0 : verb + 2)));
  }
}

}  // namespace

void shard_one(const Leaf& leaf, const NamedSharding& sharding) {
  place(leaf, [&] { return place_parameter(*leaf.value, sharding, leaf.path); });
}

void shard_alike(const Leaves& leaves, const NamedSharding& sharding) {
  check_distinct(leaves, "filter_shard");
  for (const Leaf& leaf : leaves)
    if (!leaf.value->is_absent()) shard_one(leaf, sharding);
}

namespace {

// Before anything is placed: all processes have the same model.
void check_processes_agree(const Leaves& leaves, const Layout& layout) {
  if (layout.mesh().process_count() == 1) return;
  std::string lines;
  for (const Leaf& leaf : leaves)
    if (!leaf.value->is_absent())
      lines +=
          fmt::format("{}: {} as {}\n", leaf.path, leaf.value->type_string(), resolve(leaf, layout).spec.to_string());
  tessera::detail::check_agreement("filter_shard", layout.mesh().process_count(), lines);
}

}  // namespace

void shard_by_names(const Leaves& leaves, const Layout& layout) {
  check_distinct(leaves, "filter_shard");
  check_processes_agree(leaves, layout);
  for (const Leaf& leaf : leaves) {
    if (leaf.value->is_absent()) continue;
    const PartitionSpec spec = resolve(leaf, layout).spec;
    place(leaf, [&] { return place_parameter(*leaf.value, layout, spec, leaf.path); });
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
