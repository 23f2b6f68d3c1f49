// Batches placed in the loader's threads, and compared where they are handed out, since all processes take part there.
#include "data/batches/shard_batches.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::data::detail {

namespace {

using MakeGlobal = std::function<void(const nn::Leaves& batch)>;

// A global batch and what of it this process has read.
struct CheckedBatch {
  AnyItem batch;
  std::vector<ReadRows> rows;
};

// Where each process reads its shard, those of one dataset in one order make a batch.
void check_dataset(const LoaderCore& core, const Mesh& mesh) {
  const int64_t shards = core.shard().count;
  check_same_input("shard_batches",
                   shards == 1 ? "an input that is not sharded"
                               : "one of " + std::to_string(shards) + " shards of " + core.state().dataset,
                   mesh);
}

// Each process of a sharded stream has the positions of its own parts only.
LoaderState joined_over(const Mesh& mesh, const LoaderState& mine) {
  if (!mine.stream) return mine;
  const std::vector<StreamMark>& parts = mine.stream->parts;
  if (std::none_of(parts.begin(), parts.end(), [](const StreamMark& part) { return part.is_elsewhere(); })) return mine;
  std::vector<LoaderState> all;
  for (const std::string& text : gathered_texts("state", mine.to_json(), mesh))
    all.push_back(LoaderState::from_json(text));
  return joined_state(all);
}

AnyItem checked(const AnyItem& item, int64_t place, const Mesh& mesh) {
  const std::string at = std::to_string(place);
  if (!item) {
    check_rows("next", "the end of an epoch before record " + at, {}, mesh);
    return nullptr;
  }
  const auto& next = *std::static_pointer_cast<CheckedBatch>(item);
  check_rows("next", "the batch at record " + at, next.rows, mesh);
  return next.batch;
}

void place_batches(LoaderCore& core, const BatchType& type, const Mesh& mesh, const ShardBatchesOptions& options,
                   MakeGlobal make_global) {
  const bool is_shared = mesh.process_count() > 1 && mesh.process_index() >= 0;
  const bool checks = is_shared && options.check_replicas;
  if (checks) check_dataset(core, mesh);
  core.finish_with([type, make_global = std::move(make_global), checks](const AnyItem& local) -> AnyItem {
    AnyItem global = type.copy(local);
    make_global(type.leaves(global));
    if (!checks) return global;
    std::vector<ReadRows> rows = read_rows(type.leaves(local), type.leaves(global));
    return std::make_shared<CheckedBatch>(CheckedBatch{std::move(global), std::move(rows)});
  });
  if (checks) core.hand_out_with([mesh](const AnyItem& item, int64_t at) { return checked(item, at, mesh); });
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
