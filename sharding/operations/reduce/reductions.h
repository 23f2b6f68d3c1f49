// Reductions over dims.
#pragma once

#include <optional>

#include "sharding/operations/operand.h"

namespace tessera {

// All reduce over the dims given, negative ones counted from the end, or over all of them: sum(x), sum(x, {1}),
// sum(x, {0, -1}). With keepdims the reduced dims stay, of size one. The other dims stay sharded as they are; a
// reduced dim that is sharded is never gathered. Errors (invalid_argument): a dim that x lacks or that is given twice.

// Over a sharded dim the result is a pending sum: float32[4]{U:data}, summed when it is needed. Sums of integers and
// booleans are int32 (int64 of int64), their means float32.
Array sum(Operand x, Dims dims = {}, bool keepdims = false);
Array mean(Operand x, Dims dims = {}, bool keepdims = false);

// How many elements are not zero: int32.
Array count_nonzero(Operand x, Dims dims = {}, bool keepdims = false);

// Over sharded dims one all_reduce of the result. max and min are NaN if an element is; their gradient goes in equal
// parts to all elements that are equal to the result. prod's gradient is right where elements are zero, too. Error
// (invalid_argument): max or min of nothing, which has no identity.
Array max(Operand x, Dims dims = {}, bool keepdims = false);
Array min(Operand x, Dims dims = {}, bool keepdims = false);
Array prod(Operand x, Dims dims = {}, bool keepdims = false);

// Whether any, or every, element is not zero: bool.
Array any(Operand x, Dims dims = {}, bool keepdims = false);
Array all(Operand x, Dims dims = {}, bool keepdims = false);

// The index along `dim`, or among all elements in row-major order, of the largest (smallest) element, as int32: the
// first of equal ones; a NaN wins over every number. Over a sharded dim two all_reduces: the values, then the indices.
Array argmax(Operand x, std::optional<int> dim = std::nullopt, bool keepdims = false);
Array argmin(Operand x, std::optional<int> dim = std::nullopt, bool keepdims = false);

// sum((x - mean(x))^2) / (n - ddof), and its root; NaN unless n is above ddof, as in JAX. Over sharded dims two
// all_reduces of the result's size. The gradient of std where it is zero is NaN, as in JAX. Under `using namespace
// tessera` the name std is ambiguous: write tessera::std(x).
Array var(Operand x, Dims dims = {}, bool keepdims = false, int ddof = 0);
Array std(Operand x, Dims dims = {}, bool keepdims = false, int ddof = 0);

// sqrt(sum(x^2)): jnp.linalg.norm of vectors, and of matrices (Frobenius). Its gradient at zero is NaN, as in JAX.
Array norm(Operand x, Dims dims = {}, bool keepdims = false);

// log(sum(exp(x))), exact where x is large. Over sharded dims two all_reduces of the result's size.
Array logsumexp(Operand x, Dims dims = {}, bool keepdims = false);

// Element i of the result is the sum (product) of elements 0 to i along `dim`, or among all elements in row-major
// order. Over a sharded dim x stays where it is: only the blocks' totals are gathered. Sums of booleans and products of
// booleans and uint8 are int32.
Array cumsum(Operand x, std::optional<int> dim = std::nullopt);
Array cumprod(Operand x, std::optional<int> dim = std::nullopt);

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
