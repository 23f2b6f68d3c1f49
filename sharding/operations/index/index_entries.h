// Parses the entries of x.index({...}) and x.at({...}) into the elements that they select along each dimension.
#pragma once

#include <c10/util/SmallVector.h>

#include <initializer_list>

#include "sharding/operations/operand.h"

namespace tessera::detail {

// `count` elements of a dimension.
struct Part {
  int64_t start, count, step;
  bool operator==(const Part&) const = default;
};
using Parts = c10::SmallVector<Part, 6>;

Parts whole_parts(const Shape& shape);

// Clamps a step to [-n, n] for n = max(size, 1). Every larger step also selects only one element.
int64_t clamped_step(int64_t step, int64_t size);

// Returns the index counted from the front. Error (invalid_argument): out of range.
int64_t checked_place(const char* verb, const Array& x, int dim, int64_t index);

// The selected elements of each dimension of x, and the dimensions of the result.
struct ReadIndex {
  Parts parts;
  Dims gone, fresh;            // dimensions of the slice that integers remove; new dimensions of the result
  const Array* ids = nullptr;  // to take along dimension `taken` of the result so far
  int taken = 0;
  bool ids_first = false;  // numpy's rule: ids' dimensions come first if other entries separate them from an integer
};

// Parses the entries of Array::index and throws its errors (invalid_argument).
ReadIndex read_index(const char* verb, const Array& x, std::initializer_list<Index> entries);

}  // namespace tessera::detail
