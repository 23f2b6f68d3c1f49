// Routes side by side, as one list of items.
#include "sharding/redistribution/coalesced.h"

#include <ATen/core/grad_mode.h>

#include <exception>
#include <limits>
#include <memory>
#include <utility>

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

// Arrays that move together, and wait for each other. If they are lost, each of them says so.
struct Moving {
  std::unique_ptr<Transfer> transfer;
  std::vector<Tensors> arrived = {};
  std::exception_ptr loss = nullptr;

  void finish() try { arrived = std::exchange(transfer, nullptr)->finish(); } catch (...) {
    loss = std::current_exception();
  }
  Tensors take(size_t i) {
    if (transfer) finish();
    if (loss) std::rethrow_exception(loss);
    return std::move(arrived[i]);
  }
};

// Groups of at least `bytes`; at_once: all of a group is waited for.
std::vector<ArrayPtr> convert_in_groups(const std::vector<ArrayPtr>& arrays, const std::vector<const Type*>& to,
                                        const Provenance& cause, std::optional<DType> in, int64_t bytes, bool at_once) {
  at::AutoGradMode off(false);
  std::vector<ArrayPtr> results = arrays;
  for (size_t begin = 0, end; begin < arrays.size(); begin = end) {
    std::vector<TransferItem> items;
    std::vector<size_t> shipped;
    int64_t held = 0;
    for (end = begin; end < arrays.size() && held < bytes; ++end) {
      if (arrays[end]->type == to[end]) continue;
      items.push_back(item_of(*arrays[end], to[end], in.value_or(arrays[end]->type->dtype)));
      shipped.push_back(end);
      held += to[end]->bytes;
    }
    const auto moving =
        std::make_shared<Moving>(Moving{std::make_unique<Transfer>(std::move(items), EventContext{cause})});
    const bool is_there = at_once || moving->transfer->has_arrived();
    for (size_t s = 0; s < shipped.size(); ++s) {
      const ArrayImpl& a = *arrays[shipped[s]];
      const auto take = [moving, s, dtype = a.type->dtype] { return as_dtype(moving->take(s), dtype); };
      ArrayPtr& result = results[shipped[s]] = make_array(to[shipped[s]], is_there ? take() : Tensors());
      result->mesh_rules = a.mesh_rules;
      if (!is_there) set_pending(*result, take);
    }
  }
  return results;
}

}  // namespace

std::vector<ArrayPtr> convert_coalesced(const std::vector<ArrayPtr>& arrays, const std::vector<const Type*>& to,
                                        const Provenance& cause, std::optional<DType> in) {
  return convert_in_groups(arrays, to, cause, in, std::numeric_limits<int64_t>::max(), /*at_once=*/true);
}

std::vector<ArrayPtr> convert_ahead(const std::vector<ArrayPtr>& arrays, const std::vector<const Type*>& to,
                                    const Provenance& cause) {
  return convert_in_groups(arrays, to, cause, {}, group_bytes, /*at_once=*/false);
}

}  // namespace detail

using namespace detail;

void place_coalesced(const std::vector<Array*>& arrays, const std::vector<const Array*>& places, const char* verb,
                     std::optional<DType> in) {
  static const Text reason = lasting_text("moved together");
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
