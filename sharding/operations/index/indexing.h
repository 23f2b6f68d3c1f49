// Indexing with arrays of ids: lookups, and scatters that add or set.
#pragma once

#include <optional>

#include "sharding/operations/operand.h"

namespace tessera {

// For all functions: ids are integers of any shape and placement. Negative ids count from the end, as in numpy; ids
// outside [-size, size) are an Error (invalid_argument) that names the range. The dim that ids index may be sharded:
// nothing is gathered, each device serves the ids that fall into its block, and the result of a read is a pending sum.

// table (vocab, embed), ids (...) of integers in [0, vocab), none below zero -> (..., embed). A table sharded over
// vocab is not gathered: each device looks up the rows that it has, and the result is a pending sum. With `vocab` given
// the rows from there on are padding, and an id of one is an Error (invalid_argument) as well.
Array embedding(Operand table, const Array& ids, const ResultOptions& options = {}, int64_t vocab = 0);

// jax.numpy.take: x with dimension `dim` replaced by those of ids. Without `dim`, x is flattened first.
Array take(Operand x, const Array& ids, std::optional<int> dim = std::nullopt, const ResultOptions& options = {});

// jax.numpy.take_along_axis: ids have as many dims as x; along all dims but `dim`, both broadcast. For dim 1,
// result[i, j, k] = x[i, ids[i, j, k], k].
Array take_along_axis(Operand x, const Array& ids, int dim = -1);

// jax.nn.one_hot: ids (...) -> (..., classes), 1 at each id and 0 elsewhere; zeros for an id outside [0, classes).
Array one_hot(Operand ids, int64_t classes, DType dtype = float32);

// x.at({ids}).add(updates), along `dim`: updates have the shape of take(x, ids, dim), or broadcast to it,
// and are cast to x's element type. Where ids repeat, all updates are added. Updates that are sharded along the ids are
// not gathered: the result is a pending sum, in which x counts once.
// Error (dtype_mismatch): floating updates of an integer x.
Array scatter_add(Operand x, const Array& ids, const Array& updates, int dim = 0);

// x.at({ids}).set(updates), as scatter_add; where ids repeat, the last one counts. Updates that are sharded along the
// ids are gathered first.
Array scatter_set(Operand x, const Array& ids, const Array& updates, int dim = 0);
Array scatter_set(Operand x, int64_t index, const Array& updates, int dim = 0);

// jax.numpy.bincount(ids, length=length): how often each of 0 to length - 1 occurs, int32. Error (invalid_argument): an
// id outside, which JAX clips or drops.
Array bincount(Operand ids, int64_t length);

}  // namespace tessera
