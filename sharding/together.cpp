// Routes side by side, and one entry in the ledger for what they share.
#include "sharding/together.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "sharding/communication.h"
#include "sharding/redistribute.h"

namespace tessera {
namespace detail {
namespace {

// What arrays have in common that move in one collective.
struct Shared {
  Move move;
  const MeshImpl* mesh;
  Mask axes;
  DType dtype;
  int64_t bytes = 0;
  int arrays = 0;

  bool is_like(const Shared& o) const { return move == o.move && mesh == o.mesh && axes == o.axes && dtype == o.dtype; }
};

void add_to(std::vector<Shared>& all, const Shared& one) {
  for (Shared& shared : all)
    if (shared.is_like(one)) {
      shared.bytes += one.bytes;
      shared.arrays += one.arrays;
      return;
    }
  all.push_back(one);
}

void announce_shared(const Shared& shared, const Cause& cause) {
  if (!name_of(shared.move)) return;
  const auto text = [](std::string words) { return std::make_shared<const std::string>(std::move(words)); };
  announce({.kind = name_of(shared.move),
            .mesh = shared.mesh,
            .axes = shared.axes,
            .bytes = shared.bytes,
            .cause = cause,
            .operand = text(fmt::format("{} arrays, {}", shared.arrays, tessera::name_of(shared.dtype))),
            .result = text("at their placements")});
}

// What all of them move, step by step, before any of it does.
void announce_all(const std::vector<ArrayPtr>& arrays, const std::vector<const Type*>& to, const Cause& cause,
                  std::optional<DType> in) {
  std::vector<Shared> moved;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const ArrayImpl& a = *arrays[i];
    if (a.type == to[i]) continue;
    const DType dtype = in.value_or(a.type->dtype);
    int64_t bytes = with_dtype(a.type, dtype)->bytes;
    for (const auto& step : route(with_dtype(a.type, dtype), a.slots, with_dtype(to[i], dtype)).steps) {
      bytes = result_bytes(forward_move(*step), bytes, step->mesh->count(step->axes));
      add_to(moved, {forward_move(*step), step->mesh, step->axes, dtype, bytes, 1});
    }
  }
  for (const Shared& shared : moved) announce_shared(shared, cause);
}

}  // namespace

std::vector<ArrayPtr> convert_together(const std::vector<ArrayPtr>& arrays, const std::vector<const Type*>& to,
                                       const Cause& cause, std::optional<DType> in) {
  at::AutoGradMode off(false);
  if (is_watched()) announce_all(arrays, to, cause, in);
  std::vector<ArrayPtr> results;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const ArrayImpl& a = *arrays[i];
    if (a.type == to[i]) {
      results.push_back(arrays[i]);
      continue;
    }
    const DType dtype = in.value_or(a.type->dtype);
    Tensors now = as_dtype(a.local, dtype);
    for (const auto& step : route(with_dtype(a.type, dtype), a.slots, with_dtype(to[i], dtype)).steps)
      now = exchange_forward(*step, now, cause);
    results.push_back(make_array(to[i], as_dtype(now, a.type->dtype)));
    results.back()->layout = a.layout;
  }
  return results;
}

}  // namespace detail

using namespace detail;

void place_together(const std::vector<Array*>& arrays, const std::vector<const Array*>& places, const char* verb,
                    std::optional<DType> in) {
  static const Text reason = std::make_shared<const std::string>("moved together");
  std::vector<ArrayPtr> given;
  std::vector<const Type*> to;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const ArrayImpl& a = materialized(*arrays[i], verb);
    const Type* place = materialized(*places[i], verb).type;
    given.push_back(arrays[i]->impl());
    to.push_back(place->mesh ? with_dtype(place, a.type->dtype) : with_unreduced(a.type, 0));
  }
  std::vector<ArrayPtr> moved =
      convert_together(given, to, {.operation = verb, .where = {}, .reason = reason, .path = {}}, in);
  for (size_t i = 0; i < arrays.size(); ++i) {
    ArrayPtr placed = make_array(moved[i]->type, moved[i]->slots, moved[i]->local);
    copy_facts(*places[i]->impl(), *placed);
    *arrays[i] = Array(std::move(placed));
  }
}

}  // namespace tessera
