// rearrange: results that hold the operands' elements at other places, moved between devices where needed.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <utility>
#include <vector>

#include "sharding/operations/argument_checks.h"
#include "sharding/operations/operand.h"
#include "sharding/propagation/run.h"
#include "sharding/propagation/sharding_rule.h"
#include "sharding/redistribution/block_exchange.h"

namespace tessera::detail {

struct Rearrangement {
  const Operation& operation;
  Shape shape;  // of the result
  IndexMap map;
  double fill = 0;
  std::source_location where;
};

// The operands have one element type. They are first given one placement: each dim is sharded as in the first operand
// that shards it. The result keeps the mesh axes of every dim as far as they divide its new size, and each device
// receives the elements that it lacks (block_exchange). Pending sums stay pending if all operands are, and `fill` is 0.
Array rearrange(const Rearrangement& call, const std::vector<Array>& operands);

// The type of a reshape that moves blocks between devices: the mesh axes of merged dims follow each other on the merged
// dim, those of a split dim go to its parts in order, others go to a dim that they divide.
const Type* reshaped_type(const Type* from, const Shape& shape);
Array reshape_across_devices(const Operation& operation, const Operand& x, const Type* to);

// What a call does to dims: the result's shape, and as a bit set the dims along which elements move.
struct Change {
  c10::SmallVector<int64_t, 6> shape;
  uint32_t dims = 0;

  explicit Change(const Shape& from) : shape(from.begin(), from.end()) {}
  void touch(int dim) { dims |= 1u << dim; }
  bool touches(size_t dim) const { return dims >> dim & 1; }
};

// The rule of such a call. Its attributes: the dims as bits, the result's sizes.
ShardingRule change_rule(const Attributes& attributes, const OperandTypes& operands);

// Whether a dim along which elements move is sharded.
bool moves_between_devices(const Type& type, const Change& change);

// Runs `local(tensor)` on the local tensors if the touched dims are whole; else rearranges each touched dim across
// devices by `map(dim)`.
template <class Local, class Map>
Array change_places(const Operation& op, const Operand& x, const Change& change, Local local, Map map,
                    double fill = 0) {
  const Array& a = x.array();
  if (moves_between_devices(*a.impl()->type, change)) {
    IndexMap places = identity_map(a.shape());
    for (size_t d = 0; d < places.size(); ++d)
      if (change.touches(d)) places[d] = map(static_cast<int>(d));
    return rearrange({op, Shape(change.shape.begin(), change.shape.end()), std::move(places), fill, x.where()}, {a});
  }
  return run_on_parameter({.operation = op, .attributes = Attributes({change.dims}, change.shape), .where = x.where()},
                          a, [local = std::move(local)](Locals t, const BlockContext&) { return local(t[0]); });
}

// For slices whose start is an array of one integer per dim. Whether each device reads its own values, as it must where
// these differ and can where x is whole along the dims that the slice cuts (`change`). Errors: no integers
// (dtype_mismatch), not one for each dim (shape_mismatch).
bool starts_on_devices(const char* verb, const Array& x, const Array& start, const Change& change);
// These values, in each dim moved so that a slice of these sizes lies inside the shape; 0 without data (meta).
Shape local_start(const at::Tensor& start, at::IntArrayRef shape, at::IntArrayRef sizes);

}  // namespace tessera::detail
