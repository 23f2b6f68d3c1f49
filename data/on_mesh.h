// on_mesh: a loader whose batches are global arrays, copied to the devices ahead of use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/loader.h"
#include "data/to_global.h"

namespace tessera::data {

// What on_mesh does beside placing.
struct OnMeshOptions {
  // Of several processes: those that hold the same rows compare checksums of what they read of every batch
  // (check_replicas in data/to_global.h), and all compare its place in the data and its shapes. The checksums are taken
  // in the loader's threads; what the comparison costs in next() is two messages between all processes.
  bool check_replicas = true;
};

namespace detail {

// A global batch and what of it this process has read.
template <class Batch>
struct CheckedBatch {
  Batch batch;
  std::vector<ReadRows> rows;
};

// place(local) in the loader's threads; the comparison where batches are handed out, since all processes take part.
template <class Batch, class Place>
Loader<Batch> placed(Loader<Batch> loader, const Mesh& mesh, const OnMeshOptions& options, Place place) {
  if (mesh.process_count() == 1 || !options.check_replicas) return std::move(loader).then(std::move(place));
  auto checked = std::move(loader).then([place = std::move(place)](const Batch& local) {
    Batch global = place(local);
    auto rows = read_rows(nn::leaves(local), nn::leaves(std::as_const(global)));
    return CheckedBatch<Batch>{std::move(global), std::move(rows)};
  });
  return std::move(checked).handed_out([mesh](std::optional<CheckedBatch<Batch>> next, int64_t place) {
    const std::string at = std::to_string(place);
    if (!next) {
      check_rows("next", "the end of an epoch before record " + at, {}, mesh);
      return std::optional<Batch>();
    }
    check_rows("next", "the batch at record " + at, next->rows, mesh);
    return std::optional<Batch>(std::move(next->batch));
  });
}

}  // namespace detail

// The same loader with global batches, which are placed where they are made, in its threads: the copies to the devices
// are done before the training asks for them. State, order and statistics are the loader's.
//
//   for (const TokenBatch& batch : on_mesh(Loader(tokens, token_batch, {.shard = ShardByProcess(layout)}), layout))
//
// Several processes ask for a batch together. Errors of next() beside the loader's own: as from_process_local; as
// check_replicas, after which all loaders stand before the batch that differs.
template <class Batch>
Loader<Batch> on_mesh(Loader<Batch> loader, const Layout& layout, const OnMeshOptions& options = {}) {
  return detail::placed(std::move(loader), layout.mesh(), options,
                        [layout](const Batch& local) { return from_process_local(local, layout); });
}
// The same for batches that are one Array, whose first dim counts the rows.
inline Loader<Array> on_mesh(Loader<Array> loader, const NamedSharding& sharding, const OnMeshOptions& options = {}) {
  return detail::placed(std::move(loader), sharding.mesh(), options,
                        [sharding](const Array& local) { return detail::global_array(local, sharding); });
}

}  // namespace tessera::data
