// shard_batches: a loader whose batches are global arrays, copied to the devices ahead of use.
#pragma once

#include <memory>

#include "data/batches/to_global.h"
#include "data/loader/loader.h"

namespace tessera::data {

// Options of shard_batches.
struct ShardBatchesOptions {
  // Compares what the processes read. Processes that hold the same rows compare checksums of every batch
  // (check_replicas in data/batches/to_global.h). All processes compare the batch's position in the data and its
  // shapes. The loader's threads compute the checksums. The comparison costs two messages among all processes for each
  // next().
  bool check_replicas = true;
};

namespace detail {

// Type-erased functions of a batch type.
struct BatchType {
  AnyItem (*copy)(const AnyItem& batch);
  nn::Leaves (*leaves)(const AnyItem& batch);
};
template <class Batch>
inline constexpr BatchType batch_type = {
    [](const AnyItem& batch) -> AnyItem { return std::make_shared<Batch>(*std::static_pointer_cast<Batch>(batch)); },
    [](const AnyItem& batch) { return nn::leaves(*std::static_pointer_cast<Batch>(batch)); }};

void place_batches(LoaderCore& core, const BatchType& type, const MeshRules& mesh_rules,
                   const ShardBatchesOptions& options);
void place_batches(LoaderCore& core, const BatchType& type, const NamedSharding& sharding,
                   const ShardBatchesOptions& options);

}  // namespace detail

// Returns a loader whose batches are global arrays on the mesh. The loader's threads place them, so a batch is on the
// devices before the training loop asks for it. State, order and statistics stay those of `loader`.
//
//   Loader loader(tokens, token_batch, {.shard = ShardByProcess(mesh_rules)});
//   for (const TokenBatch& batch : shard_batches(std::move(loader), mesh_rules)) { ... }
//
// All processes must call next() together. For a divided stream (data/streams/stream.h) all must also call state()
// together: they exchange the positions of their parts, and each gets the joined state, which all processes restore.
// Errors of next(), in addition to the loader's own
//   those of from_process_local
//   those of check_replicas; no loader has then advanced past the batch that differs
template <class Batch>
Loader<Batch> shard_batches(Loader<Batch> loader, const MeshRules& mesh_rules,
                            const ShardBatchesOptions& options = {}) {
  detail::place_batches(core_of(loader), detail::batch_type<Batch>, mesh_rules, options);
  return loader;
}
// Does the same for batches that are one Array, whose dimension 0 counts the rows.
inline Loader<Array> shard_batches(Loader<Array> loader, const NamedSharding& sharding,
                                   const ShardBatchesOptions& options = {}) {
  detail::place_batches(core_of(loader), detail::batch_type<Array>, sharding, options);
  return loader;
}

}  // namespace tessera::data
