// Reading and writing at computed places: lookups.
#pragma once

#include "sharding/operand.h"

namespace tessera {

// table (vocab, embed), ids (...) of integers in [0, vocab) -> (..., embed). A table sharded over vocab is looked up
// where it lies: each device gives the rows that it has, and the result is a pending sum.
Array embedding(Operand table, const Array& ids);

}  // namespace tessera
