// Operand: an array as an operation takes it, with the line it was written on.
#pragma once

#include <concepts>
#include <source_location>
#include <vector>

#include "sharding/array.h"

namespace tessera {

// Every operation takes arrays of any placement and gives the same value and gradient as on one device. Where its
// operands lie together, nothing moves; where they disagree, what has to move is decided as docs/sharding.md says and
// stands in the ledger. Operands that were never placed join the mesh of the others as replicated.
// Errors of all: shapes that do not fit (shape_mismatch), arrays on different meshes (device_mismatch), absent arrays.

// An operand of an operator, which carries the line of the expression it stands in.
class Operand {
 public:
  template <class T>
  requires std::convertible_to<const T&, const Array&> Operand(
      const T& x, std::source_location where = std::source_location::current())
      : array_(static_cast<const Array&>(x)), where_(where) {}
  const Array& array() const { return array_; }
  const std::source_location& where() const { return where_; }

 private:
  const Array& array_;
  std::source_location where_;
};

using Dims = std::vector<int>;

}  // namespace tessera
