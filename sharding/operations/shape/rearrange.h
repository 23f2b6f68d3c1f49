// rearrange: results that hold the operands' elements at other places, moved between devices where needed.
#pragma once

#include <vector>

#include "sharding/operations/operand.h"
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

}  // namespace tessera::detail
