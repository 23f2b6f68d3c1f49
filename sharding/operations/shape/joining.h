// Pads, shifts, copies, joins and splits arrays.
#pragma once

#include <source_location>
#include <utility>
#include <vector>

#include "sharding/operations/operand.h"

namespace tessera {

// slicing.h describes the communication along a sharded dimension, and the result's sharding.

// Pads with a constant, as numpy.pad: `widths[d]` elements before and after. Error (invalid_argument): a value that x's
// type cannot hold, such as a fraction for integers.
Array pad(Operand x, std::vector<std::pair<int64_t, int64_t>> widths, double value = 0);
// Reverses the order of the elements along these dimensions, or along all.
Array flip(Operand x, Dims dims = {});
// Shifts elements along a dimension, as numpy.roll; elements that leave at one end enter at the other. Without a
// dimension, x is flattened for the shift.
Array roll(Operand x, int64_t shift);
Array roll(Operand x, int64_t shift, int dim);
// Repeats the complete array along dimensions, as numpy.tile; reps are aligned with the last dimensions.
Array tile(Operand x, Shape reps);

// Joins one or more arrays along `dim`, as numpy.concatenate. Different element types are promoted as in JAX.
Array concatenate(const std::vector<Array>& arrays, int dim = 0,
                  std::source_location where = std::source_location::current());
// Joins arrays along a new dimension of the result.
Array stack(const std::vector<Array>& arrays, int dim = 0,
            std::source_location where = std::source_location::current());
// Splits x into equal pieces along `dim`, or into pieces that begin at 0 and at each of `places`, as numpy.split. Error
// (shape_mismatch): a dimension that is not a multiple of `sections`.
std::vector<Array> split(Operand x, int64_t sections, int dim = 0);
std::vector<Array> split(Operand x, const std::vector<int64_t>& places, int dim = 0);

}  // namespace tessera
