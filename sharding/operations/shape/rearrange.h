// rearrange: moves elements of operands to other positions of a result, between devices if necessary.
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
  Shape shape;  // shape of the result
  IndexMap map;
  double fill = 0;
  std::source_location where;
};

// Returns the result of a rearrangement. The operands have one element type and are first given one sharding: each
// dimension is sharded as in the first operand that shards it. The result keeps the mesh axes of a dimension that
// divide its new size, and each device receives the elements that it lacks (block_exchange). Partial sums stay partial
// sums if all operands are, and `fill` is 0.
Array rearrange(const Rearrangement& call, const std::vector<Array>& operands);

// Returns the type of a reshape that moves blocks between devices. The mesh axes of merged dimensions are concatenated.
// The mesh axes of a split dimension are assigned to the new dimensions in order. Other axes are assigned to a
// dimension that they divide.
const Type* reshaped_type(const Type* from, const Shape& shape);
Array reshape_across_devices(const Operation& operation, const Operand& x, const Type* to);

// The effect of a call on dimensions: the result's shape, and the set (bits) of dimensions along which elements move.
struct Change {
  c10::SmallVector<int64_t, 6> shape;
  uint32_t dims = 0;

  explicit Change(const Shape& from) : shape(from.begin(), from.end()) {}
  void touch(int dim) { dims |= 1u << dim; }
  bool touches(size_t dim) const { return dims >> dim & 1; }
};

// Returns the rule of a call with changed dimensions. Its attributes: the dimensions as bits, then the result's sizes.
ShardingRule change_rule(const Attributes& attributes, const OperandTypes& operands);

// Requires the touched dimensions of x to be replicated. The touched dimensions of `part` get the sizes in the
// attributes from index 1 on, if there are any.
void touch_dims(const Attributes& attributes, RuleDims& x, RuleDims& part);

// Returns true if a dimension along which elements move is sharded.
bool moves_between_devices(const Type& type, const Change& change);

// Runs `local(tensor)` on the local tensors if the touched dimensions are not sharded. Otherwise rearranges each
// touched dimension across devices by `map(dim)`.
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

// For slices whose start is an array of one integer per dimension: returns true if each device reads its own values.
// This is required if the values differ between devices. It is possible if x is not sharded along the sliced dimensions
// (`change`).
// Errors
//   dtype_mismatch: `start` does not hold integers
//   shape_mismatch: not one integer per dimension
bool starts_on_devices(const char* verb, const Array& x, const Array& start, const Change& change);
// Returns these values, clamped in each dimension so that a slice of these sizes is inside the shape; 0 without data
// (meta).
Shape local_start(const at::Tensor& start, at::IntArrayRef shape, at::IntArrayRef sizes);

}  // namespace tessera::detail
