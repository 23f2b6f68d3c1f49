// Routes side by side, as one list of shipments.
#include "sharding/redistribution/coalesced.h"

#include <ATen/core/grad_mode.h>

#include "sharding/redistribution/communicate.h"
#include "sharding/redistribution/route.h"

namespace tessera {
namespace detail {

std::vector<ArrayPtr> convert_coalesced(const std::vector<ArrayPtr>& arrays, const std::vector<const Type*>& to,
                                        const Cause& cause, std::optional<DType> in) {
  at::AutoGradMode off(false);
  std::vector<Shipment> shipments;
  std::vector<ArrayPtr> results = arrays;
  std::vector<size_t> shipped;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const ArrayImpl& a = *arrays[i];
    if (a.type == to[i]) continue;
    const DType dtype = in.value_or(a.type->dtype);
    shipments.push_back(
        {route(with_dtype(a.type, dtype), a.slots, with_dtype(to[i], dtype)).steps, as_dtype(a.local, dtype)});
    shipped.push_back(i);
  }
  const std::vector<Tensors> moved = Shipping(std::move(shipments), {cause}).finish();
  for (size_t s = 0; s < shipped.size(); ++s) {
    const ArrayImpl& a = *arrays[shipped[s]];
    const Type* type = to[shipped[s]];
    ArrayPtr& result = results[shipped[s]] = make_array(type, as_dtype(moved[s], a.type->dtype));
    result->layout = a.layout;
  }
  return results;
}

}  // namespace detail

using namespace detail;

void place_coalesced(const std::vector<Array*>& arrays, const std::vector<const Array*>& places, const char* verb,
                     std::optional<DType> in) {
  static const Text reason = as_text("moved together");
  std::vector<ArrayPtr> given;
  std::vector<const Type*> to;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const ArrayImpl& a = materialized(*arrays[i], verb);
    const Type* place = materialized(*places[i], verb).type;
    given.push_back(arrays[i]->impl());
    to.push_back(place->mesh ? with_dtype(place, a.type->dtype) : with_unreduced(a.type, 0));
  }
  std::vector<ArrayPtr> moved =
      convert_coalesced(given, to, {.operation = verb, .where = {}, .reason = reason, .path = {}}, in);
  for (size_t i = 0; i < arrays.size(); ++i) {
    ArrayPtr placed = make_array(moved[i]->type, moved[i]->slots, moved[i]->local);
    copy_facts(*places[i]->impl(), *placed);
    *arrays[i] = Array(std::move(placed));
  }
}

}  // namespace tessera
