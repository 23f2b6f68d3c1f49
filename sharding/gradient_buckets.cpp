// Buckets announced, and summed over processes in the order of their first parameters.
#include "sharding/gradient_buckets.h"

#include <fmt/format.h>

#include "sharding/communication.h"
#include "sharding/engine.h"

namespace tessera::detail {

void GradientBuckets::add(const Key& key, int64_t bytes, const Text& path, size_t begin, size_t end) {
  Bucket& bucket = buckets_[key];
  bucket.bytes += bytes;
  bucket.parameters.push_back({path, begin, end});
}

// "embed.tokens", or "embed.tokens and 28 more".
Text GradientBuckets::paths_of(const Bucket& bucket) {
  const Text& first = bucket.parameters[0].path;
  if (bucket.parameters.size() == 1 || !first) return first;
  return std::make_shared<const std::string>(fmt::format("{} and {} more", *first, bucket.parameters.size() - 1));
}

void GradientBuckets::announce() const {
  if (!is_watched()) return;
  for (const auto& [key, bucket] : buckets_) {
    const auto& [mesh, axes, dtype] = key;
    if (mesh->count(axes) == 1) continue;
    const auto text = [](std::string words) { return std::make_shared<const std::string>(std::move(words)); };
    tessera::detail::announce(
        {.kind = "all_reduce",
         .mesh = mesh,
         .axes = axes,
         .bytes = bucket.bytes,
         .cause = {.operation = gradients_operation,
                   .where = {},
                   .reason = text(fmt::format("the work differs along {}", mesh->names(axes))),
                   .path = paths_of(bucket)},
         .operand = text(fmt::format("{} gradients, {}", bucket.parameters.size(), name_of(dtype))),
         .result = text("at the parameters' placements"),
         .backward = true});
  }
}

// Not in the order of the keys, which hold addresses: all processes must take the buckets in one order.
void GradientBuckets::reduce(Tensors& blocks) const {
  std::map<size_t, const decltype(buckets_)::value_type*> in_order;
  for (const auto& entry : buckets_) in_order[entry.second.parameters[0].begin] = &entry;
  for (const auto& [first, entry] : in_order) {
    const auto& [mesh, axes, dtype] = entry->first;
    if (!(axes & mesh->crossing())) continue;
    Tensors mine;
    for (const Entry& parameter : entry->second.parameters)
      for (size_t b = parameter.begin; b < parameter.end; ++b) mine.push_back(in_memory_of(mesh, blocks[b]));
    const Cause cause{.operation = gradients_operation, .where = {}, .reason = {}, .path = {}};
    const Tensors all = sum_over_processes(mesh, axes, mine, cause);
    size_t next = 0;
    for (const Entry& parameter : entry->second.parameters)
      for (size_t b = parameter.begin; b < parameter.end; ++b) blocks[b] = all[next++].to(blocks[b].device());
  }
}

}  // namespace tessera::detail
