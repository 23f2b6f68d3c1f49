// Sorting along a dim.
#pragma once

#include "sharding/operations/operand.h"

namespace tessera {

// Sorts along `dim`, ascending or descending; NaN counts as larger than every number. argsort gives the indices (int32)
// of what sort gives; equal elements keep their order. The mesh axes of a sharded `dim` move to another dim by
// all_to_all where they divide it; else `dim` is gathered.
Array sort(Operand x, int dim = -1, bool descending = false);
Array argsort(Operand x, int dim = -1, bool descending = false);

// The k largest elements of the last dim, the largest first, and their indices (int32); of equal elements the first. Of
// a sharded dim only each device's k largest elements are gathered, where these are fewer. Error (invalid_argument): a
// k that is negative or larger than the dim.
struct TopK {
  Array values, indices;
};
TopK top_k(Operand x, int k);

}  // namespace tessera
