// on_mesh: a loader whose batches are global arrays, copied to the devices ahead of use.
#pragma once

#include <utility>

#include "data/loader.h"
#include "data/to_global.h"

namespace tessera::data {

// The same loader with global batches, which are placed where they are made, in its threads: the copies to the devices
// are done before the training asks for them. State, order and statistics are the loader's.
//
//   for (const TokenBatch& batch : on_mesh(Loader(tokens, token_batch, {.shard = ShardByProcess(layout)}), layout))
template <class Batch>
Loader<Batch> on_mesh(Loader<Batch> loader, const Layout& layout) {
  return std::move(loader).then([layout](const Batch& local) { return from_process_local(local, layout); });
}
// The same for batches that are one Array.
inline Loader<Array> on_mesh(Loader<Array> loader, const NamedSharding& sharding) {
  return std::move(loader).then(
      [sharding](const Array& local) { return make_array_from_process_local_data(sharding, local); });
}

}  // namespace tessera::data
