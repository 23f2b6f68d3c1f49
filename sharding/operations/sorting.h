// Sorting along a dim.
#pragma once

#include "sharding/operations/operand.h"

namespace tessera {

// Along `dim` in ascending order, or descending; NaN counts as larger than every number. argsort gives the indices
// (int32) of what sort gives; equal elements keep their order. A sharded dim moves to another dim by all_to_all where
// that divides, and is gathered else.
Array sort(Operand x, int dim = -1, bool descending = false);
Array argsort(Operand x, int dim = -1, bool descending = false);

// The k largest elements of the last dim, the largest first, and their indices (int32); of equal elements the first. A
// sharded dim is not gathered: each device's k best are, where these are fewer. Error (bad_argument): a k that is
// negative or larger than the dim.
struct TopK {
  Array values, indices;
};
TopK top_k(Operand x, int k);

}  // namespace tessera
