// Pads, shifts, copies, joins and splits.
#pragma once

#include <source_location>
#include <utility>
#include <vector>

#include "sharding/operations/operand.h"

namespace tessera {

// For what moves along a sharded dim, and where the result lies, see slicing.h.

// numpy.pad with a constant: `widths[d]` elements before and after. Error (invalid_argument): a value that x's type
// cannot hold, such as a fraction for integers.
Array pad(Operand x, std::vector<std::pair<int64_t, int64_t>> widths, double value = 0);
// x with the order of the elements reversed along these dims, or along all.
Array flip(Operand x, Dims dims = {});
// numpy.roll: elements shifted along a dim; those that leave at one end enter at the other. Without a dim, x is
// flattened for the shift.
Array roll(Operand x, int64_t shift);
Array roll(Operand x, int64_t shift, int dim);
// numpy.tile: copies of the whole side by side; reps are aligned with the last dims.
Array tile(Operand x, Shape reps);

// numpy.concatenate: one or more arrays, one behind the other along `dim`. Different element types are promoted as in
// JAX.
Array concatenate(const std::vector<Array>& arrays, int dim = 0,
                  std::source_location where = std::source_location::current());
// The same along a new dim of the result.
Array stack(const std::vector<Array>& arrays, int dim = 0,
            std::source_location where = std::source_location::current());
// numpy.split: equal parts along `dim`, or parts that begin at 0 and at each of `places`. Errors (shape_mismatch): a
// dim that is not a multiple of `sections`.
std::vector<Array> split(Operand x, int64_t sections, int dim = 0);
std::vector<Array> split(Operand x, const std::vector<int64_t>& places, int dim = 0);

}  // namespace tessera
