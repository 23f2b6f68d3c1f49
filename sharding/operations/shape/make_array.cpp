// Makes arrays from blocks: reads, checks and assembles them.
#include "sharding/operations/shape/make_array.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cstring>
#include <map>
#include <set>

#include "sharding/array/abstract_tensor.h"
#include "sharding/array/array_impl.h"
#include "sharding/array/padding.h"
#include "sharding/base/fail.h"
#include "sharding/redistribution/device_put.h"

namespace tessera {

using namespace detail;

namespace {

// Reads one device's block as a tensor, checked against the block's type.
class BlockReader {
 public:
  BlockReader(const Shape& shape, const NamedSharding& sharding, const char* verb)
      : verb_(verb), shape_(shape), sharding_(sharding), ranges_(sharding.devices_indices_map(shape)) {}

  const IndexRanges& ranges(int place) const { return ranges_[place]; }

  at::Tensor read(const Array& block, int place) {
    const ArrayImpl& a = materialized(block, verb_);
    check(block, place);
    if (!type_) type_ = placed_type(a.type->dtype, shape_, sharding_, verb_);
    return in_memory_of(type_->mesh, with_padding(a.local[0].detach().contiguous(), type_->local));
  }

  const Type* type() const { return type_; }

 private:
  void check(const Array& block, int place) const {
    const Shape expected = sizes_of(ranges_[place]);
    const std::string whose = fmt::format("the block {} of device {}", ranges_text(ranges_[place]), device(place));
    if (block.is_committed() && block.sharding().mesh().devices() != std::vector<int>{device(place)})
      fail(ErrorKind::device_mismatch, verb_,
           "{} given for {} is on the mesh ({}) of device {}. Leave it unplaced, or put it on its device.",
           block.type_string(), whose, block.sharding().mesh().to_string(), block.sharding().mesh().devices()[0]);
    if (block.shape() != expected)
      fail(ErrorKind::shape_mismatch, verb_, "{} given for {}, expected the shape {}.", block.type_string(), whose,
           to_string(expected));
    if (type_ && block.dtype() != type_->dtype)
      fail(ErrorKind::dtype_mismatch, verb_,
           "{} given for {}, the blocks before it are {}. Make all of one element type.", block.type_string(), whose,
           name_of(type_->dtype));
  }

  int device(int place) const { return sharding_.mesh().devices()[place]; }

  const char* verb_;
  const Shape& shape_;
  const NamedSharding& sharding_;
  std::vector<IndexRanges> ranges_;
  const Type* type_ = nullptr;
};

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.cpu(), y = b.cpu();
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

// Returns the places of this process's devices in the mesh. A process without devices gets the first process's places,
// because it passes the same shapes and element type.
std::vector<int> places_here(const MeshImpl* mesh) {
  const int process = mesh->elsewhere ? mesh->process_of(0) : mesh->process;
  std::vector<int> places;
  for (int place = 0; place < mesh->count(mesh->all()); ++place)
    if (mesh->process_of(place) == process) places.push_back(place);
  return places;
}

int slot_of(const MeshImpl* mesh, int place, AxisSet slots) { return ravel(mesh, slots, coordinates_of(mesh, place)); }

// Makes the array from the tensors of this process's devices, keeping one tensor per stored block.
Array stored(const Type* type, const NamedSharding& sharding, const Tensors& tensors) {
  const MeshImpl* mesh = type->mesh;
  const std::vector<int> places = places_here(mesh);
  Tensors local(mesh->slots(type->slots));
  for (size_t i = places.size(); i-- > 0;) local[slot_of(mesh, places[i], type->slots)] = tensors[i];
  if (mesh->abstract) local = {abstract_block(type)};
  ArrayPtr result = make_array(type, std::move(local));
  result->detail().placed = std::make_unique<NamedSharding>(sharding);
  return Array(std::move(result));
}

// Returns, for each of this process's devices, the index of the first one with the same block.
std::vector<size_t> first_holders(const Type* type) {
  const MeshImpl* mesh = type->mesh;
  std::map<int, size_t> first;
  std::vector<size_t> result;
  for (const int place : places_here(mesh))
    result.push_back(first.try_emplace(slot_of(mesh, place, type->own()), result.size()).first->second);
  return result;
}

// ---- this process's rows

// The blocks along one dimension that this process's devices hold: `count` of `all`, from `first` on.
struct Stretch {
  int64_t first, count, all;
};

Stretch stretch_of(const Type* type, size_t d) {
  const MeshImpl* mesh = type->mesh;
  const DimAxes& axes = type->dims[d];
  std::set<int64_t> blocks;
  for (const int place : places_here(mesh)) blocks.insert(block_number(mesh, axes, coordinates_of(mesh, place)));
  const auto count = static_cast<int64_t>(blocks.size());
  if (*blocks.rbegin() - *blocks.begin() + 1 != count)
    fail(ErrorKind::invalid_argument, "make_array_from_process_local_data",
         "the blocks of process {} along dim {} of {} are not contiguous. Order the mesh's devices by process, "
         "or use make_array_from_callback.",
         mesh->process, d, type->to_string());
  return {*blocks.begin(), count, mesh->count(axes.axis_set())};
}

// Returns a type with a shape that every sharding on this mesh divides.
const Type* divisible_type(const NamedSharding& sharding, size_t ndim) {
  return placed_type(float32, Shape(ndim, sharding.mesh().size()), sharding, "make_array_from_process_local_data");
}

}  // namespace

Shape shape_from_process_local(const NamedSharding& sharding, const Shape& local) {
  const Type* type = divisible_type(sharding, local.size());
  Shape shape = local;
  for (size_t d = 0; d < shape.size(); ++d) {
    const Stretch s = stretch_of(type, d);
    if (s.count < s.all && d < sharding.spec().entries().size() && sharding.spec().entries()[d].pads())
      fail(ErrorKind::not_divisible, "make_array_from_process_local_data",
           "dim {} of {} may be padded, so that this process's {} rows do not determine how many there are. Give the "
           "global "
           "shape.",
           d, sharding.spec().to_string(), local[d]);
    shape[d] *= s.all / s.count;
  }
  return shape;
}

IndexRanges process_local_part(const NamedSharding& sharding, const Shape& shape) {
  const Type* type = placed_type(float32, shape, sharding, "make_array_from_process_local_data");
  IndexRanges part;
  for (size_t d = 0; d < shape.size(); ++d) {
    const Stretch s = stretch_of(type, d);
    part.emplace_back(std::min(s.first * type->local[d], shape[d]),
                      std::min((s.first + s.count) * type->local[d], shape[d]));
  }
  return part;
}

Array make_array_from_callback(const Shape& shape, const NamedSharding& sharding,
                               const std::function<Array(const IndexRanges&)>& make_block) {
  constexpr const char* verb = "make_array_from_callback";
  if (!sharding.spec().unreduced_axes().empty())
    fail(ErrorKind::invalid_argument, verb,
         "{} is a partial sum, and ranges do not determine which term of it a device holds. Use "
         "make_array_from_shards.",
         sharding.spec().to_string());
  const std::vector<size_t> holders = first_holders(placed_type(float32, shape, sharding, verb));
  const std::vector<int> places = places_here(sharding.mesh().impl());
  BlockReader reader(shape, sharding, verb);
  Tensors tensors;
  for (size_t i = 0; i < places.size(); ++i) {
    const size_t holder = holders[i];
    tensors.push_back(holder == i ? reader.read(make_block(reader.ranges(places[i])), places[i])
                      : sharding.mesh().private_replicas() ? tensors[holder].clone()
                                                           : tensors[holder]);
  }
  return stored(reader.type(), sharding, tensors);
}

Array make_array_from_process_local_data(const NamedSharding& sharding, const Array& local) {
  if (sharding.mesh().process_count() == 1) return device_put(local, sharding);
  return make_array_from_process_local_data(sharding, local, shape_from_process_local(sharding, local.shape()));
}

Array make_array_from_process_local_data(const NamedSharding& sharding, const Array& local, const Shape& shape) {
  constexpr const char* verb = "make_array_from_process_local_data";
  if (local.shape().size() != shape.size())
    fail(ErrorKind::shape_mismatch, verb, "{} given for the global shape {}. Give as many dims.", local.type_string(),
         to_string(shape));
  const IndexRanges part = process_local_part(sharding, shape);
  if (local.shape() != sizes_of(part))
    fail(ErrorKind::shape_mismatch, verb, "{} given for the global shape {}: this process {} the mesh ({}). Give {}.",
         local.type_string(), to_string(shape),
         sharding.mesh().process_count() == 1 ? std::string("owns all devices of")
                                              : "holds " + ranges_text(part) + " of it on",
         sharding.mesh().to_string(), sharding.mesh().process_count() == 1 ? "all rows" : "these rows");
  if (sharding.mesh().process_count() == 1) return device_put(local, sharding);
  const at::Tensor mine = to_tensor(local);
  return make_array_from_callback(shape, sharding, [&](IndexRanges block) {
    for (size_t d = 0; d < block.size(); ++d) block[d].first -= part[d].first, block[d].second -= part[d].first;
    return from_tensor(cut(mine, block).clone(at::MemoryFormat::Contiguous));
  });
}

Array make_array_from_shards(const Shape& shape, const NamedSharding& sharding, const std::vector<Array>& shards) {
  constexpr const char* verb = "make_array_from_shards";
  const std::vector<size_t> holders = first_holders(placed_type(float32, shape, sharding, verb));
  const std::vector<int> places = places_here(sharding.mesh().impl());
  if (shards.size() != places.size())
    fail(ErrorKind::shape_mismatch, verb, "{} shards given for the mesh ({}), expected {}: one for each device{}.",
         shards.size(), sharding.mesh().to_string(), places.size(),
         sharding.mesh().process_count() == 1 ? "" : " of this process");
  BlockReader reader(shape, sharding, verb);
  Tensors tensors;
  for (size_t i = 0; i < shards.size(); ++i) {
    tensors.push_back(reader.read(shards[i], places[i]));
    if (!same_bits(tensors[holders[i]], tensors[i]))
      fail(ErrorKind::invalid_argument, verb,
           "devices {} and {} hold the same block {} of {} with different values. Give equal replicas.",
           sharding.mesh().devices()[places[holders[i]]], sharding.mesh().devices()[places[i]],
           ranges_text(reader.ranges(places[i])), reader.type()->to_string());
  }
  return stored(reader.type(), sharding, tensors);
}

}  // namespace tessera
