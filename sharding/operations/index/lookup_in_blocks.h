// Lookups in a table whose blocks lie in one memory.
#pragma once

#include "sharding/propagation/run.h"

namespace tessera::detail {

// Whether the results of several slots are terms of one sum of this process's memory, and the table is one to be read
// row by row.
bool finds_rows_at_once(const Prepared& call);

// The rows that the ids (below `vocab`) ask for, each read where it lies. Of a pending sum the first slot has all of
// them, the others nothing.
Array rows_in_blocks(const Prepared& call, int64_t vocab);

}  // namespace tessera::detail
