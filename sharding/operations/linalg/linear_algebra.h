// Products of arrays: matmul, einsum, and other contractions.
#pragma once

#include <source_location>
#include <string_view>
#include <utility>
#include <vector>

#include "sharding/operations/operand.h"

namespace tessera {

// For all products: different element types are promoted first. For booleans a product is "and", and a sum is "or", as
// in JAX. A sharded dimension that is summed over leaves a partial sum. `options` specify the result's sharding.
//
// Errors
//   shape_mismatch: dimensions that do not fit
//   invalid_argument: dimensions that an operand does not have

// Multiplies matrices as numpy.matmul: (..., i, k) x (..., k, j) -> (..., i, j). Leading dimensions broadcast; 1-D
// operands are vectors.
Array matmul(Operand a, Operand b, const ResultOptions& options = {});

// Computes numpy.einsum: einsum("bqhd,bkhd->bhqk", {q, k}). One letter names each dimension, and "..." any number of
// dimensions that broadcast. Dimensions that the result lacks are summed over; a letter twice in one operand takes its
// diagonal. Without "->", the result has the letters that occur once, in alphabetical order. More than two operands are
// multiplied from left to right. Error (invalid_argument): an equation that is malformed, or for a different number of
// operands.
Array einsum(std::string_view equation, const std::vector<Array>& operands, const ResultOptions& options = {},
             std::source_location where = std::source_location::current());

// The dimensions of jax.lax.dot_general. The product sums over the pairs of dimensions in `contract` (one list for each
// operand); the pairs in `batch` are batch dimensions. The result has the batch dimensions, then the other dimensions
// of a, then the other dimensions of b.
struct DotDims {
  std::pair<Dims, Dims> contract, batch = {};
};
Array dot_general(Operand a, Operand b, const DotDims& dims, const ResultOptions& options = {});

// Sums over the last `dims` dimensions of a and the first of b, or over pairs of dimensions, as numpy.tensordot.
Array tensordot(Operand a, Operand b, int dims = 2, const ResultOptions& options = {});
Array tensordot(Operand a, Operand b, const std::pair<Dims, Dims>& dims, const ResultOptions& options = {});

// Sums over the last dimension of a and the second to last of b, as numpy.dot; with a scalar array, returns a * b.
Array dot(Operand a, Operand b, const ResultOptions& options = {});
// Returns sum(a * b) of all elements, both arrays flattened row-major.
Array vdot(Operand a, Operand b, const ResultOptions& options = {});
// Sums over the last dimensions of both.
Array inner(Operand a, Operand b, const ResultOptions& options = {});
// Returns the products of every element of a with every element of b, as a matrix.
Array outer(Operand a, Operand b, const ResultOptions& options = {});

// Computes jax.lax.ragged_dot for every matrix of a batch.
//   x        (..., rows, in): the first sizes[..., 0] rows belong to group 0, the next sizes[..., 1] to group 1, and so
//     on
//   kernels  (groups, in, out)
//   sizes    (..., groups), integers
//   result   (..., rows, out): rows after all groups get zeros
// Groups may be sharded: each device computes the rows of its own groups, and the result is a partial sum. On an
// abstract mesh, which has no sizes, groups count as equal.
//
// On a CPU the host reads the sizes, and each group's product has exactly its rows.
//
// On an accelerator with grouped products (at::_grouped_mm) the host reads nothing, and each group's product has its
// rows, too. Rows are sorted by group on the device, with one row of zeros for an empty group. With sharded groups,
// each device has places for all rows, but multiplies only those of its groups. The conditions are:
// - a GPU of compute capability 9.0 or 10.0, in a program that links tessera::nccl
// - operands of type bfloat16, whose `in` and `out` are multiples of 8 on each device
// - at most 1023 groups on a device
// - a single derivative
//
// On another accelerator that has all groups, the host reads nothing either. Rows are sorted into tiles of
// ceil(n / groups) places (n: rows of all matrices), filled up with zeros. The number of tiles is the largest that any
// sizes need. So n rows cost less than 2 n + groups rows in one batched product. Each direction copies the kernels of
// the tiles, at most 2 groups, half of them at a time. The sorted rows and their places are kept for the backward pass,
// the copies are not.
//
// On another accelerator with sharded groups, the host reads the sizes. A single device may have all rows. Without the
// sizes, each device would therefore compute as many rows as all devices together.
//
// Errors
//   dtype_mismatch: sizes that are not integers
//   shape_mismatch: shapes that do not fit
//   invalid_argument: a size below zero, or more rows than there are. If the host reads nothing, this error is thrown
//     with the next value that is read, and the nearest valid sizes are used.
Array ragged_dot(Operand x, const Array& kernels, const Array& sizes);

// A weighted sum and the sum of its weights: two scalars. The sums of micro-batches add up to the sum of the batch.
// Their means do not, if the micro-batches have different weights. A loss function may return a WeightedSum, and
// nn::accumulate_gradients then computes the gradient of the complete batch.
struct WeightedSum {
  Array sum, weight;

  // Returns sum / weight. A weight of 0 divides as 1, so the mean of no values is 0, and so is its gradient.
  Array mean(std::source_location where = std::source_location::current()) const;
};

// Adds the sums and adds the weights.
WeightedSum operator+(const WeightedSum& a, const WeightedSum& b);

// Returns sum(weights * values) and sum(weights), in float32 at least, and in float64 if either is float64. Weights,
// which may be booleans, have the shape of the values. If they are absent, all are 1, and the weight is the number of
// values. A loss function that uses elementwise losses (optim/schedules/losses.h) returns:
//   return weighted_sum(optim::huber_loss(model(batch.x), batch.y), batch.is_real);
// Error (shape_mismatch): weights of the wrong shape.
WeightedSum weighted_sum(Operand values, const Array& weights = {});

}  // namespace tessera

namespace tessera::detail {

// Returns matmul(x, kernel) + bias, of shapes (..., in), (in, out) and (out). If that communicates the same, product
// and sum are one function, which writes the result once. The ledger calls it "matmul".
Array linear(const Operand& x, const Operand& kernel, const Operand& bias);

}  // namespace tessera::detail
