// Lookups whose ids and array are sharded over the same mesh axes: chooses which of the two is gathered.
#pragma once

#include "sharding/operations/operand.h"
#include "sharding/propagation/run.h"
#include "sharding/propagation/sharding_rule.h"

namespace tessera::detail {

// A read of x along `dim`. Dimension 0 of ids is dimension `first` of the result. Each id finds one element, or a
// complete slice.
struct Read {
  enum class Finds : uint8_t { element, slice };
  const Operation& operation;
  const Operand& x;
  const Array& ids;
  int64_t dim, first;
  Finds finds;
};

// Returns the gathered ids if gathering them and scattering the result communicates fewer bytes than gathering x; else
// an absent array, and x must be gathered. An x that is a weight is always gathered.
Array gathered_ids(const Read& read);

// Scatters `found`, the partial sum that the gathered ids gave, so that each device has the results of its own ids.
Array scattered_result(const Read& read, const Array& found, const Array& gathered);

// Returns true if the results of several slots are terms of one sum in this process's memory, and the table should be
// read row by row.
bool finds_rows_at_once(const Prepared& call);

// Returns the rows of these ids (below `vocab`), each read from its block. The first slot of a partial sum has all of
// them; the other slots have zero placeholders.
Array rows_in_blocks(const Prepared& call, int64_t vocab);

}  // namespace tessera::detail
