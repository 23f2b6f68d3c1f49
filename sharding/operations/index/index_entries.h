// The entries of x.index({...}) and x.at({...}) as parts of the dims.
#pragma once

#include <c10/util/SmallVector.h>

#include <initializer_list>

#include "sharding/operations/operand.h"

namespace tessera::detail {

// `count` elements of a dim.
struct Part {
  int64_t start, count, step;
  bool operator==(const Part&) const = default;
};
using Parts = c10::SmallVector<Part, 6>;

Parts whole_parts(const Shape& shape);

// A step past the whole dim takes one element however long it is.
int64_t clamped_step(int64_t step, int64_t size);

// The place of an element of a dim. Error (invalid_argument): out of range.
int64_t checked_place(const char* verb, const Array& x, int dim, int64_t index);

// The selected part of each dim of x, and the dims of the result.
struct ReadIndex {
  Parts parts;
  Dims gone, fresh;            // dims of the slice that integers take away; dims of the result that are new
  const Array* ids = nullptr;  // to take along dim `taken` of what is then the result
  int taken = 0;
  bool ids_first = false;  // numpy's rule: their dims come first if other entries separate them from an integer
};

// Errors (invalid_argument) of Array::index.
ReadIndex read_index(const char* verb, const Array& x, std::initializer_list<Index> entries);

}  // namespace tessera::detail
