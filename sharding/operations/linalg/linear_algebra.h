// Products of arrays: matmul, einsum, and other contractions.
#pragma once

#include <source_location>
#include <string_view>
#include <utility>
#include <vector>

#include "sharding/operations/operand.h"

namespace tessera {

// Different element types are promoted first; of booleans, a product is "and", a sum "or", as in JAX.
// A dim that is summed away and sharded leaves a pending sum. `options` say where the result shall lie.
// Errors of all: dims that do not fit (shape_mismatch), dims that an operand does not have (invalid_argument).

// numpy.matmul: (..., i, k) x (..., k, j) -> (..., i, j), leading dims broadcast; one-dim operands are vectors.
Array matmul(Operand a, Operand b, const ResultOptions& options = {});

// numpy.einsum: einsum("bqhd,bkhd->bhqk", {q, k}). One letter for each dim, "..." for any number that broadcast; what
// the result lacks is summed over; a letter twice in one operand takes its diagonal. Without "->",
// the result has the letters that occur once, in alphabetical order. More than two operands are multiplied from left to
// right. Error (invalid_argument): an equation that is malformed, or for another number of operands.
Array einsum(std::string_view equation, const std::vector<Array>& operands, const ResultOptions& options = {},
             std::source_location where = std::source_location::current());

// jax.lax.dot_general: sums over the pairs of dims in `contract` (one list for each operand); the pairs in `batch` are
// batch dims. The result has the batch dims, then the rest of a's, then the rest of b's.
struct DotDims {
  std::pair<Dims, Dims> contract, batch = {};
};
Array dot_general(Operand a, Operand b, const DotDims& dims, const ResultOptions& options = {});

// numpy.tensordot: sums over the last `dims` dims of a and the first of b, or over pairs of dims.
Array tensordot(Operand a, Operand b, int dims = 2, const ResultOptions& options = {});
Array tensordot(Operand a, Operand b, const std::pair<Dims, Dims>& dims, const ResultOptions& options = {});

// numpy.dot: sums over the last dim of a and the last but one of b; with a scalar array, a * b.
Array dot(Operand a, Operand b, const ResultOptions& options = {});
// sum(a * b) of all elements, both arrays flattened row-major.
Array vdot(Operand a, Operand b, const ResultOptions& options = {});
// Sums over the last dims of both.
Array inner(Operand a, Operand b, const ResultOptions& options = {});
// Every element of a times every one of b, as a matrix.
Array outer(Operand a, Operand b, const ResultOptions& options = {});

// A sum, and the weight by which it is to be divided: two scalars. The sums of the parts of a batch add up to that of
// the whole; their means do not, where the parts weigh differently. A loss function may return one, and
// nn::accumulate_gradients then gives the gradient of the whole batch.
struct WeightedSum {
  Array sum, weight;

  // sum / weight. A weight of 0 divides as 1, so that the mean of nothing is 0, and so is its gradient.
  Array mean(std::source_location where = std::source_location::current()) const;
};

// Sums added, and weights added.
WeightedSum operator+(const WeightedSum& a, const WeightedSum& b);

// sum(weights * values) and sum(weights), in float32 at least, and in float64 if either is float64. Weights, which may
// be booleans, have the shape of the values; absent: all are 1, and the weight is the number of values. A loss
// function that uses elementwise losses (optim/schedules/losses.h) returns:
//   return weighted_sum(optim::huber_loss(model(batch.x), batch.y), batch.is_real);
// Error (shape_mismatch): weights of another shape.
WeightedSum weighted_sum(Operand values, const Array& weights = {});

}  // namespace tessera

namespace tessera::detail {

// matmul without its options.
Array matrix_product(const Operand& a, const Operand& b);

// matmul(x, kernel) + bias, of shapes (..., in), (in, out) and (out): where that communicates the same, as one
// function, which writes the result once. The ledger calls it "matmul".
Array linear(const Operand& x, const Operand& kernel, const Operand& bias);

}  // namespace tessera::detail
