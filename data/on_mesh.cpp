// Batches placed in the loader's threads, and compared where they are handed out, since all processes take part there.
#include "data/on_mesh.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::data::detail {

namespace {

using PlaceLeaf = std::function<Array(const nn::Leaf& local)>;

AnyItem placed(const AnyItem& local, const BatchType& type, const PlaceLeaf& place) {
  AnyItem global = type.copy(local);
  for (const nn::Leaf& leaf : type.leaves(global)) *leaf.value = place(leaf);
  return global;
}

// A global batch and what of it this process has read.
struct CheckedBatch {
  AnyItem batch;
  std::vector<ReadRows> rows;
};

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

void place_batches(LoaderCore& core, const BatchType& type, const Mesh& mesh, const OnMeshOptions& options,
                   PlaceLeaf place) {
  const bool checks = mesh.process_count() > 1 && options.check_replicas;
  core.finish_with([type, place = std::move(place), checks](const AnyItem& local) -> AnyItem {
    AnyItem global = placed(local, type, place);
    if (!checks) return global;
    std::vector<ReadRows> rows = read_rows(type.leaves(local), type.leaves(global));
    return std::make_shared<CheckedBatch>(CheckedBatch{std::move(global), std::move(rows)});
  });
  if (checks) core.hand_out_with([mesh](const AnyItem& item, int64_t at) { return checked(item, at, mesh); });
}

}  // namespace

void place_batches(LoaderCore& core, const BatchType& type, const Layout& layout, const OnMeshOptions& options) {
  place_batches(core, type, layout.mesh(), options, [layout](const nn::Leaf& local) {
    return local.value->is_absent() ? *local.value : global_array(local, layout);
  });
}

void place_batches(LoaderCore& core, const BatchType& type, const NamedSharding& sharding,
                   const OnMeshOptions& options) {
  place_batches(core, type, sharding.mesh(), options,
                [sharding](const nn::Leaf& local) { return global_array(*local.value, sharding); });
}

}  // namespace tessera::data::detail
