// Blocks made or given, checked and put together.
#include "sharding/make_array.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cstring>

#include "sharding/abstract_tensor.h"
#include "sharding/array_impl.h"
#include "sharding/device_put.h"

namespace tessera {

using namespace detail;

namespace {

std::string ranges_text(const IndexRanges& block) {
  std::string text;
  for (const auto& [start, stop] : block) text += fmt::format("{}{}:{}", text.empty() ? "" : ", ", start, stop);
  return fmt::format("[{}]", text);
}

// One device's block as a tensor, checked against the block's type.
class BlockReader {
 public:
  BlockReader(const Shape& shape, const NamedSharding& sharding, const char* verb)
      : verb_(verb), shape_(shape), sharding_(sharding), ranges_(sharding.devices_indices_map(shape)) {}

  const IndexRanges& ranges(int place) const { return ranges_[place]; }

  at::Tensor read(const Array& block, int place) {
    const ArrayImpl& a = materialized(block, verb_);
    check(block, place);
    if (!type_) type_ = placed_type(a.type->dtype, shape_, sharding_, verb_);
    return a.local[0].detach().contiguous();
  }

  const Type* type() const { return type_; }

 private:
  void check(const Array& block, int place) const {
    const Shape expected = sharding_.shard_shape(shape_);
    const std::string whose = fmt::format("the block {} of device {}", ranges_text(ranges_[place]), device(place));
    if (block.is_committed() && block.sharding().mesh().devices() != std::vector<int>{device(place)})
      fail(ErrorKind::device_mismatch, verb_,
           fmt::format(
               "{} given for {} lies on the mesh ({}) of device {}. Leave it unplaced, or put it on its device.",
               block.type_string(), whose, block.sharding().mesh().to_string(), block.sharding().mesh().devices()[0]));
    if (block.shape() != expected)
      fail(ErrorKind::shape_mismatch, verb_,
           fmt::format("{} given for {}, expected the shape {}.", block.type_string(), whose, to_string(expected)));
    if (type_ && block.dtype() != type_->dtype)
      fail(ErrorKind::dtype_mismatch, verb_,
           fmt::format("{} given for {}, the blocks before it are {}. Make all of one element type.",
                       block.type_string(), whose, name_of(type_->dtype)));
  }

  int device(int place) const { return sharding_.mesh().devices()[place]; }

  const char* verb_;
  const Shape& shape_;
  const NamedSharding& sharding_;
  std::vector<IndexRanges> ranges_;
  const Type* type_ = nullptr;
};

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

// From the tensor of every device, those that are stored.
Array stored(const Type* type, const NamedSharding& sharding, const Tensors& of_place) {
  const MeshImpl* mesh = type->mesh;
  Tensors local(mesh->count(type->slots));
  for (int place = static_cast<int>(of_place.size()) - 1; place >= 0; --place)
    local[project(mesh, mesh->all(), place, type->slots)] = of_place[place];
  if (mesh->abstract) local[0] = abstract_block(type);
  ArrayPtr result = make_array(type, std::move(local));
  result->detail().placed = std::make_unique<NamedSharding>(sharding);
  return Array(std::move(result));
}

// For every device, the first in mesh order that holds the same.
std::vector<int> first_holders(const Type* type) {
  const MeshImpl* mesh = type->mesh;
  std::vector<int> first(mesh->count(type->own()), -1), result;
  for (int place = 0; place < mesh->count(mesh->all()); ++place) {
    int& holder = first[project(mesh, mesh->all(), place, type->own())];
    if (holder < 0) holder = place;
    result.push_back(holder);
  }
  return result;
}

}  // namespace

Array make_array_from_callback(const Shape& shape, const NamedSharding& sharding,
                               const std::function<Array(const IndexRanges&)>& make_block) {
  constexpr const char* verb = "make_array_from_callback";
  if (!sharding.spec().unreduced_axes().empty())
    fail(ErrorKind::bad_argument, verb,
         fmt::format("{} leaves a sum pending, and ranges do not say which part of it a device holds. Use "
                     "make_array_from_shards.",
                     sharding.spec().to_string()));
  const std::vector<int> holders = first_holders(placed_type(float32, shape, sharding, verb));
  BlockReader reader(shape, sharding, verb);
  Tensors of_place;
  for (int place = 0; place < static_cast<int>(holders.size()); ++place) {
    const int holder = holders[place];
    of_place.push_back(holder == place                      ? reader.read(make_block(reader.ranges(place)), place)
                       : sharding.mesh().private_replicas() ? of_place[holder].clone()
                                                            : of_place[holder]);
  }
  return stored(reader.type(), sharding, of_place);
}

Array make_array_from_process_local_data(const NamedSharding& sharding, const Array& local) {
  return device_put(local, sharding);
}

Array make_array_from_process_local_data(const NamedSharding& sharding, const Array& local, const Shape& shape) {
  if (local.shape() != shape)
    fail(ErrorKind::shape_mismatch, "make_array_from_process_local_data",
         fmt::format("{} given for the global shape {}: this process owns all devices of the mesh ({}). Give all rows.",
                     local.type_string(), to_string(shape), sharding.mesh().to_string()));
  return make_array_from_process_local_data(sharding, local);
}

Array make_array_from_shards(const Shape& shape, const NamedSharding& sharding, const std::vector<Array>& shards) {
  constexpr const char* verb = "make_array_from_shards";
  const std::vector<int> holders = first_holders(placed_type(float32, shape, sharding, verb));
  if (static_cast<int64_t>(shards.size()) != sharding.mesh().size())
    fail(ErrorKind::shape_mismatch, verb,
         fmt::format("{} shards given for the mesh ({}), expected {}: one for each device.", shards.size(),
                     sharding.mesh().to_string(), sharding.mesh().size()));
  BlockReader reader(shape, sharding, verb);
  Tensors of_place;
  for (int place = 0; place < static_cast<int>(shards.size()); ++place) {
    of_place.push_back(reader.read(shards[place], place));
    if (!same_bits(of_place[holders[place]], of_place[place]))
      fail(ErrorKind::bad_argument, verb,
           fmt::format("devices {} and {} hold the same block {} of {} with other values. Give replicas alike.",
                       sharding.mesh().devices()[holders[place]], sharding.mesh().devices()[place],
                       ranges_text(reader.ranges(place)), reader.type()->to_string()));
  }
  return stored(reader.type(), sharding, of_place);
}

}  // namespace tessera
