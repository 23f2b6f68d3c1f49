// The table of collectives, and routes through it: the one place where a collective is chosen.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sharding/redistribution/step.h"

namespace tessera::detail {

// One row of the table: how a state of a mesh axis becomes another, and the way back between the cotangents' states
// (sharded <-> sharded, replicated <-> replicated, unreduced <-> reduced).
struct TableRow {
  Row row;
  const char *from, *to;
  Collective forward, backward;
};
const TableRow& table_row(Row row);
std::span<const TableRow> table();

// A collective's name in ledgers (null: nothing is communicated), the bytes of its result on one device from those of
// its operand, and the bytes that one device sends for a result of so many bytes: the cost by which routes are compared,
// 0 where no route weighs it.
struct CollectiveTraits {
  Collective collective;
  const char* name;
  int64_t (*result_bytes)(int64_t bytes, int devices);
  double (*sent_bytes)(double result, int devices);
};
const CollectiveTraits& traits_of(Collective collective);

struct Route {
  std::vector<StepPtr> steps;
  double cost = 0;
};

// The steps from one placement to another, in the order shrink, sum, exchange, grow. `slots` are those of the tensors
// before the first step. Routes are kept in a bounded cache of the thread.
const Route& route(const Type* from, AxisSet slots, const Type* to);

}  // namespace tessera::detail
