// Places batches in the loader's threads, and compares them in next(), which all processes call together.
#include "data/batches/shard_batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::data::detail {

namespace {

using MakeGlobal = std::function<void(const nn::Leaves& batch)>;

// A global batch and the rows of it that this process has read.
struct CheckedBatch {
  AnyItem batch;
  std::vector<ReadRows> rows;
};

// Checks that all processes read shards of the same dataset, or the same unsharded input.
void check_dataset(const LoaderCore& core, const Mesh& mesh) {
  const int64_t shards = core.shard().count;
  check_same_input("shard_batches",
                   shards == 1 ? "an input that is not sharded"
                               : fmt::format("one of {} shards of {}", shards, core.state().dataset),
                   mesh);
}

// Joins the states of all processes of the mesh, because each process of a divided stream has the positions of its own
// parts only.
LoaderState joined_over(const Mesh& mesh, const LoaderState& mine) {
  if (!mine.stream) return mine;
  const std::vector<StreamPosition>& parts = mine.stream->parts;
  if (std::none_of(parts.begin(), parts.end(), [](const StreamPosition& part) { return part.is_elsewhere(); }))
    return mine;
  std::vector<LoaderState> all;
  for (const std::string& text : gathered_texts("state", mine.to_json(), mesh))
    all.push_back(LoaderState::from_json(text));
  return joined_state(all);
}

AnyItem checked(const AnyItem& item, int64_t place, const Mesh& mesh) {
  if (!item) {
    check_rows("next", fmt::format("the end of an epoch before record {}", place), {}, mesh);
    return nullptr;
  }
  const auto& next = *std::static_pointer_cast<CheckedBatch>(item);
  check_rows("next", fmt::format("the batch at record {}", place), next.rows, mesh);
  return next.batch;
}

void place_batches(LoaderCore& core, const BatchType& type, const Mesh& mesh, const ShardBatchesOptions& options,
                   MakeGlobal make_global) {
  const bool is_shared = mesh.process_count() > 1 && mesh.process_index() >= 0;
  const bool checks = is_shared && options.check_replicas;
  if (checks) check_dataset(core, mesh);
  core.on_produce([type, make_global = std::move(make_global), checks](const AnyItem& local) -> AnyItem {
    AnyItem global = type.copy(local);
    make_global(type.leaves(global));
    if (!checks) return global;
    std::vector<ReadRows> rows = read_rows(type.leaves(local), type.leaves(global));
    return std::make_shared<CheckedBatch>(CheckedBatch{std::move(global), std::move(rows)});
  });
  if (checks) core.on_consume([mesh](const AnyItem& item, int64_t at) { return checked(item, at, mesh); });
  if (is_shared) core.join_states_with([mesh](const LoaderState& state) { return joined_over(mesh, state); });
}

}  // namespace

void place_batches(LoaderCore& core, const BatchType& type, const MeshRules& mesh_rules,
                   const ShardBatchesOptions& options) {
  place_batches(core, type, mesh_rules.mesh(), options,
                [mesh_rules](const nn::Leaves& batch) { make_global(batch, mesh_rules); });
}

void place_batches(LoaderCore& core, const BatchType& type, const NamedSharding& sharding,
                   const ShardBatchesOptions& options) {
  place_batches(core, type, sharding.mesh(), options, [sharding](const nn::Leaves& batch) {
    for (const nn::Leaf& leaf : batch) *leaf.value = global_array(*leaf.value, sharding);
  });
}

}  // namespace tessera::data::detail
