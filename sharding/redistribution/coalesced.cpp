// Converts several arrays as the items of one Transfer.
#include "sharding/redistribution/coalesced.h"

#include <ATen/core/grad_mode.h>

#include <limits>
#include <memory>
#include <utility>

#include "sharding/array/out_of_memory.h"
#include "sharding/redistribution/route.h"

namespace tessera {
namespace detail {

TransferItem item_of(const ArrayImpl& a, const Type* to, DType in) {
  return {route(with_dtype(a.type, in), a.slots, with_dtype(to, in)).steps, as_dtype(a.local, in)};
}

ArrayPtr taken_off_mesh(const ArrayPtr& a) {
  if (!a->type->mesh) return a;
  const at::Tensor& value = materialized(Array(a), "gather").local[0];
  ArrayPtr made = make_array(uncommitted_type(a->type->dtype, a->type->shape), {in_memory_of(nullptr, value)});
  copy_facts(*a, *made);
  return made;
}

namespace {

constexpr int64_t group_bytes = int64_t{4} << 20;  // large enough to keep a network busy

}  // namespace

std::vector<ArrayPtr> convert_coalesced(const std::vector<ArrayPtr>& arrays, const std::vector<const Type*>& to,
                                        const Provenance& cause, const ConvertOptions& options) try {
  at::AutoGradMode off(false);
  const int64_t bytes = options.ahead ? group_bytes : std::numeric_limits<int64_t>::max();
  std::vector<ArrayPtr> results = arrays;
  for (size_t begin = 0, end; begin < arrays.size(); begin = end) {
    std::vector<TransferItem> items;
    std::vector<size_t> places;  // the index in `arrays` of each item
    int64_t held = 0;
    for (end = begin; end < arrays.size() && held < bytes; ++end) {
      if (arrays[end]->type == to[end]) continue;
      items.push_back(item_of(*arrays[end], to[end], options.in.value_or(arrays[end]->type->dtype)));
      places.push_back(end);
      held += to[end]->bytes;
    }
    const auto transfer = std::make_shared<Transfer>(std::move(items), EventContext{cause});
    const bool has_arrived = !options.ahead || transfer->has_arrived();
    for (size_t i = 0; i < places.size(); ++i) {
      const ArrayImpl& a = *arrays[places[i]];
      const auto take = [transfer, i, dtype = a.type->dtype] { return as_dtype(transfer->take(i), dtype); };
      ArrayPtr& result = results[places[i]] = make_array(to[places[i]], has_arrived ? take() : Tensors());
      result->mesh_rules = a.mesh_rules;
      if (!has_arrived) set_pending(*result, take);
    }
  }
  return results;
} catch (const std::exception& error) {
  const MeshImpl* mesh = to.empty() ? nullptr : to[0]->mesh;
  check_allocation(error, cause.operation, cause.where, "to reshard its arrays",
                   mesh ? mesh->device : c10::Device(c10::kCPU));
  throw;
}

}  // namespace detail

using namespace detail;

void place_coalesced(const std::vector<Array*>& arrays, const std::vector<const Array*>& places, const char* verb,
                     std::optional<DType> in) {
  static const Text reason = lasting_text("resharded together");
  std::vector<ArrayPtr> given;
  std::vector<const Type*> to;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const ArrayImpl& a = materialized(*arrays[i], verb);
    const Type* place = materialized(*places[i], verb).type;
    given.push_back(arrays[i]->impl());
    to.push_back(place->mesh ? with_dtype(place, a.type->dtype) : with_unreduced(a.type, 0));
  }
  std::vector<ArrayPtr> moved =
      convert_coalesced(given, to, {.operation = verb, .where = {}, .reason = reason, .path = {}}, {.in = in});
  for (size_t i = 0; i < arrays.size(); ++i) {
    ArrayPtr placed = make_array(moved[i]->type, moved[i]->slots, moved[i]->local);
    copy_facts(*places[i]->impl(), *placed);
    *arrays[i] = Array(std::move(placed));
  }
}

}  // namespace tessera
