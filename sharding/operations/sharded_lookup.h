// Lookups whose ids and whose array are cut by the same mesh axes: which of the two is gathered.
#pragma once

#include "sharding/operations/operand.h"
#include "sharding/propagation/sharding_rule.h"

namespace tessera::detail {

// A read of x along `dim`; ids' first dim is dim `first` of the result. Each id finds one element, or a whole slice.
struct Read {
  enum class Finds : uint8_t { element, slice };
  const Operation& operation;
  const Operand& x;
  const Array& ids;
  int64_t dim, first;
  Finds finds;
};

// A weight is gathered, as everywhere. Of others, what moves less: all of x, or the ids and then the result. In the
// second case these are the gathered ids, else an absent array.
Array gathered_ids(const Read& read);

// What was found with gathered ids, a pending sum, as each device's own ids have it.
Array scattered_result(const Read& read, const Array& found, const Array& gathered);

}  // namespace tessera::detail
