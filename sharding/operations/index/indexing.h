// Indexing with arrays of ids: lookups, and scatters that add or set.
#pragma once

#include <optional>

#include "sharding/operations/operand.h"

namespace tessera {

// For all functions: ids are integers of any shape and sharding. Negative ids count from the end, as in numpy; ids
// outside [-size, size) are an Error (invalid_argument) that names the range. The indexed dimension may be sharded:
// nothing is gathered, each device serves the ids of its block, and the result of a read is a partial sum.

// Returns the rows of table (vocab, embed) at ids (...) -> (..., embed). Ids are integers in [0, vocab); negative ids
// are an Error too. A table sharded over vocab is not gathered: each device looks up the rows that it has, and the
// result is a partial sum. If `vocab` is given, later rows are padding, and an id of one is also an Error
// (invalid_argument).
Array embedding(Operand table, const Array& ids, const ResultOptions& options = {}, int64_t vocab = 0);

// Returns x with dimension `dim` replaced by the dimensions of ids, as jax.numpy.take. Without `dim`, x is flattened
// first.
Array take(Operand x, const Array& ids, std::optional<int> dim = std::nullopt, const ResultOptions& options = {});

// Returns elements of x along `dim`, as jax.numpy.take_along_axis. ids have as many dimensions as x; along all
// dimensions but `dim`, both broadcast. For dimension 1, result[i, j, k] = x[i, ids[i, j, k], k].
Array take_along_axis(Operand x, const Array& ids, int dim = -1);

// Returns 1 at each id and 0 elsewhere, as jax.nn.one_hot: ids (...) -> (..., classes); zeros for an id outside [0,
// classes).
Array one_hot(Operand ids, int64_t classes, DType dtype = float32);

// Adds updates to x along `dim`, as x.at({ids}).add(updates). Updates have the shape of take(x, ids, dim), or broadcast
// to it, and are cast to x's element type. If ids repeat, all their updates are added. Updates that are sharded along
// the ids are not gathered: the result is a partial sum, in which x counts once. Error (dtype_mismatch): floating
// updates of an integer x.
Array scatter_add(Operand x, const Array& ids, const Array& updates, int dim = 0);

// Sets elements of x along `dim`, as x.at({ids}).set(updates); otherwise like scatter_add. If ids repeat, the last of
// their updates counts. Updates that are sharded along the ids are gathered first.
Array scatter_set(Operand x, const Array& ids, const Array& updates, int dim = 0);
Array scatter_set(Operand x, int64_t index, const Array& updates, int dim = 0);

// Returns how often each of 0 to length - 1 occurs, int32, as jax.numpy.bincount(ids, length=length). Error
// (invalid_argument): an id outside, which JAX clips or drops.
Array bincount(Operand ids, int64_t length);

}  // namespace tessera
