// Lookups whose ids and whose array are sharded by the same mesh axes: which of the two is gathered.
#pragma once

#include "sharding/operations/operand.h"
#include "sharding/propagation/run.h"
#include "sharding/propagation/sharding_rule.h"

namespace tessera::detail {

// A read of x along `dim`. Dim 0 of ids is dim `first` of the result. Each id finds one element, or a whole slice.
struct Read {
  enum class Finds : uint8_t { element, slice };
  const Operation& operation;
  const Operand& x;
  const Array& ids;
  int64_t dim, first;
  Finds finds;
};

// The gathered ids, if gathering them and scattering the result moves fewer bytes than gathering x; else an absent
// array, and x is to be gathered. An x that is a weight is always gathered.
Array gathered_ids(const Read& read);

// `found`, the pending sum that the gathered ids gave, scattered so that each device has the results of its own ids.
Array scattered_result(const Read& read, const Array& found, const Array& gathered);

// Whether the results of several slots are terms of one sum of this process's memory, and the table is one to be read
// row by row.
bool finds_rows_at_once(const Prepared& call);

// The rows that the ids (below `vocab`) ask for, each read where it lies. Of a pending sum the first slot has all of
// them, the others nothing.
Array rows_in_blocks(const Prepared& call, int64_t vocab);

}  // namespace tessera::detail
