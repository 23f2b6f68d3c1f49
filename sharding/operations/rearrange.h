// Rearrangements: results whose elements are those of their operands at other places, across devices where need be.
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

// The operands, of one element type, are placed alike first: each dim as the first operand that is cut there. The
// result keeps the mesh axes of every dim as far as they divide its new size, and each device gets the elements that it
// lacks from those that have them (block_exchange). Pending sums stay pending where all are and nothing else is filled
// in.
Array rearrange(const Rearrangement& call, const std::vector<Array>& operands);

// A reshape whose blocks do not stay where they are: the mesh axes of dims that are merged follow each other on the
// merged one, and those of a split dim go to its parts in order; others go to a dim that they divide.
const Type* reshaped_type(const Type* from, const Shape& shape);
Array reshape_across_devices(const Operation& operation, const Operand& x, const Type* to);

}  // namespace tessera::detail
