// The table of collectives, and routes through it: the only place where a collective is chosen.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sharding/redistribution/step.h"

namespace tessera::detail {

// One row of the table: the collective from one state of a mesh axis to another, and the collective back between the
// states of the cotangents. The states of an array and its cotangent are: sharded and
// sharded; replicated and replicated; unreduced and reduced; reduced and unreduced.
struct TableRow {
  Row row;
  const char *from, *to;
  Collective forward, backward;
};
const TableRow& table_row(Row row);
std::span<const TableRow> table();

// A collective's name in ledgers (null: nothing is communicated), and two functions. The first returns the bytes of the
// result on one device from the bytes of the operand. The second returns the bytes that one device sends for a result
// of that size. Routes are compared by the bytes sent; 0 for collectives that no route contains.
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

// Returns the steps from one sharding to another, in the order shrink, sum, exchange, grow. `slots` are the axes of the
// tensors before the first step. Routes are kept in a bounded cache per thread.
const Route& route(const Type* from, AxisSet slots, const Type* to);

}  // namespace tessera::detail
