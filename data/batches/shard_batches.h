// shard_batches: a loader whose batches are global arrays, copied to the devices ahead of use.
#pragma once

#include <memory>

#include "data/batches/to_global.h"
#include "data/loader/loader.h"

namespace tessera::data {

// Options of shard_batches.
struct ShardBatchesOptions {
  // With several processes, those that hold the same rows compare checksums of every batch that they read
  // (check_replicas in data/batches/to_global.h), and all compare the batch's place in the data and its shapes. The
  // checksums are computed in the loader's threads; the comparison costs next() two messages between all processes.
  bool check_replicas = true;
};

namespace detail {

// What the loader has to know of the type of a batch.
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

// The same loader with global batches, which its threads place on the mesh: the copies to the devices are done before
// the training asks for the batch. State, order and statistics are the loader's; but the state of a divided stream
// (data/streams/any_stream.h) has the places of all its parts, which the processes exchange: then all call state()
// together, and each gets the one state that all restore.
//
//   Loader loader(tokens, token_batch, {.shard = ShardByProcess(mesh_rules)});
//   for (const TokenBatch& batch : shard_batches(std::move(loader), mesh_rules)) { ... }
//
// All processes call next() together. Its errors, beside the loader's own: those of from_process_local; those of
// check_replicas, after which all loaders stand before the batch that differs.
template <class Batch>
Loader<Batch> shard_batches(Loader<Batch> loader, const MeshRules& mesh_rules,
                            const ShardBatchesOptions& options = {}) {
  detail::place_batches(core_of(loader), detail::batch_type<Batch>, mesh_rules, options);
  return loader;
}
// The same for batches that are one Array, whose first dim counts the rows.
inline Loader<Array> shard_batches(Loader<Array> loader, const NamedSharding& sharding,
                                   const ShardBatchesOptions& options = {}) {
  detail::place_batches(core_of(loader), detail::batch_type<Array>, sharding, options);
  return loader;
}

}  // namespace tessera::data
