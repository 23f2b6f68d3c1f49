// Arrays made from LibTorch tensors: from the program's own, and from the local shards of an array.
#include <ATen/core/Tensor.h>

#include <vector>

#include "sharding/array/array_impl.h"
#include "sharding/array/padding.h"
#include "sharding/base/fail.h"

namespace tessera {

using namespace detail;

namespace {

Array unplaced(const at::Tensor& tensor) {
  const Type* type = uncommitted_type(static_cast<DType>(tensor.scalar_type()), tensor.sizes().vec());
  return Array(make_array(type, 0, {in_memory_of(nullptr, tensor)}));
}

}  // namespace

Array from_tensor(const at::Tensor& tensor) {
  if (!tensor.defined())
    fail(ErrorKind::missing_array, "from_tensor", "an undefined tensor, expected one with a value.");
  if (tensor.layout() != at::kStrided)
    fail(ErrorKind::invalid_argument, "from_tensor",
         "a sparse tensor, expected a dense one. Convert it with to_dense.");
  if (tensor.is_meta())
    fail(ErrorKind::missing_array, "from_tensor",
         "a tensor of the \"meta\" device, which has no values, expected some.");
  if (name_of(static_cast<DType>(tensor.scalar_type())).empty())
    fail(ErrorKind::dtype_mismatch, "from_tensor", "a tensor of {}, which is not an element type of an Array.",
         c10::toString(tensor.scalar_type()));
  return unplaced(tensor);
}

std::vector<Shard> Array::global_shards() const {
  const NamedSharding placement = sharding();
  const ArrayImpl& a = materialized(*this, "global_shards");
  const auto blocks = placement.devices_indices_map(shape());
  const auto replicas = placement.replica_ids(shape());
  const MeshImpl* mesh = a.type->mesh;
  std::vector<Shard> shards;
  for (int place = 0; place < static_cast<int>(blocks.size()); ++place) {
    Shard& shard = shards.emplace_back(
        Shard{mesh->devices[place], mesh->process_of(place), blocks[place], replicas[place], Array()});
    if (shard.process != mesh->process) continue;
    Coordinates coordinates(mesh);
    unravel_place(mesh, mesh->all(), place, coordinates);
    const at::Tensor block = a.local[ravel(mesh, a.slots, coordinates)].detach();
    shard.data = unplaced(without_padding(block, block_of(a.type, coordinates)));
  }
  return shards;
}

std::vector<Shard> Array::addressable_shards() const {
  std::vector<Shard> shards = global_shards();
  std::erase_if(shards, [](const Shard& shard) { return shard.data.is_absent(); });
  return shards;
}

}  // namespace tessera
