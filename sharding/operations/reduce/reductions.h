// Reductions over dimensions, cumulative sums, and sorting.
#pragma once

#include <optional>

#include "sharding/operations/operand.h"

namespace tessera {

// All reductions take dimensions, negative ones counted from the end, or reduce over all: sum(x), sum(x, {1}), sum(x,
// {0, -1}). With keepdims the reduced dimensions stay, of size one. The other dimensions stay sharded; a reduced
// dimension that is sharded is never gathered. Errors (invalid_argument): a dimension that x lacks or that is given
// twice.

// Return sums and means. Over a sharded dimension the result is a partial sum, float32[4]{U:data}, which is reduced
// when needed. Sums of integers and booleans are int32 (int64 for int64), their means float32.
Array sum(Operand x, Dims dims = {}, bool keepdims = false);
Array mean(Operand x, Dims dims = {}, bool keepdims = false);

// Returns the number of elements that are not zero: int32.
Array count_nonzero(Operand x, Dims dims = {}, bool keepdims = false);

// Return extremes and products, with one all_reduce of the result over sharded dimensions. max and min are NaN if an
// element is NaN. Their gradient is split equally between all elements that are equal to the result. prod's gradient is
// also correct for elements that are zero. Error (invalid_argument): max or min of no elements, which have no identity.
Array max(Operand x, Dims dims = {}, bool keepdims = false);
Array min(Operand x, Dims dims = {}, bool keepdims = false);
Array prod(Operand x, Dims dims = {}, bool keepdims = false);

// Return whether any, or every, element is not zero: bool.
Array any(Operand x, Dims dims = {}, bool keepdims = false);
Array all(Operand x, Dims dims = {}, bool keepdims = false);

// Return the index, as int32, of the largest (smallest) element along `dim`, or among all elements in row-major order.
// The first of equal elements counts. A NaN wins over every number. A sharded dimension takes two all_reduces: of the
// values, then of the indices.
Array argmax(Operand x, std::optional<int> dim = std::nullopt, bool keepdims = false);
Array argmin(Operand x, std::optional<int> dim = std::nullopt, bool keepdims = false);

// Return sum((x - mean(x))^2) / (n - ddof), and its square root; NaN unless n is above ddof, as in JAX. Sharded
// dimensions take two all_reduces of the result's size. The gradient of std is NaN where std is zero, as in JAX. Under
// `using namespace tessera` the name std is ambiguous: write tessera::std(x).
Array var(Operand x, Dims dims = {}, bool keepdims = false, int ddof = 0);
Array std(Operand x, Dims dims = {}, bool keepdims = false, int ddof = 0);

// Returns sqrt(sum(x^2)): jnp.linalg.norm of vectors, and of matrices (Frobenius). Its gradient at zero is NaN, as in
// JAX.
Array norm(Operand x, Dims dims = {}, bool keepdims = false);

// Returns log(sum(exp(x))), without overflow for large x. Sharded dimensions take two all_reduces of the result's size.
Array logsumexp(Operand x, Dims dims = {}, bool keepdims = false);

// Return cumulative sums and products: element i is the sum (product) of elements 0 to i along `dim`, or among all
// elements in row-major order. Over a sharded dimension x is not gathered, only the totals of the blocks. Sums of
// booleans and products of booleans and uint8 are int32.
Array cumsum(Operand x, std::optional<int> dim = std::nullopt);
Array cumprod(Operand x, std::optional<int> dim = std::nullopt);

// Sort along `dim`, ascending or descending; NaN counts as larger than every number. argsort returns the indices
// (int32) of sort's result; equal elements keep their order. The mesh axes of a sharded `dim` move to another dimension
// by all_to_all if they divide it; else `dim` is gathered.
Array sort(Operand x, int dim = -1, bool descending = false);
Array argsort(Operand x, int dim = -1, bool descending = false);

// The result of top_k: the k largest elements of the last dimension, the largest first, and their indices (int32).
// Equal elements keep their order. If the dimension is sharded, only each device's k largest elements are gathered, if
// these are fewer. Error (invalid_argument): a k that is negative or larger than the dimension.
struct TopK {
  Array values, indices;
};
TopK top_k(Operand x, int k);

}  // namespace tessera
