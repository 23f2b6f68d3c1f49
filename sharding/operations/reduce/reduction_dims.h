// The dims of a reduction: checked, written as a rule, and restored as dims of size one.
#pragma once

#include <ATen/core/Tensor.h>

#include "sharding/operations/argument_checks.h"
#include "sharding/propagation/run.h"
#include "sharding/propagation/sharded_reduction.h"

namespace tessera::detail {

struct Reduction {
  c10::DimVector dims;  // ascending
  bool keepdims = false;
  Attributes attributes;  // keepdims, then the dims
};

// Empty `dims` mean all. Errors (invalid_argument): a dim that x lacks or that is given twice.
Reduction checked_reduction(const char* verb, const Array& x, const Dims& dims, bool keepdims);
// For operations without an identity. Error (invalid_argument): the result has elements, but there is nothing to
// reduce.
Reduction nonempty_reduction(const char* verb, const Array& x, const Dims& dims, bool keepdims);

// How many elements of x are reduced to one element of the result.
int64_t elements_of(const Array& x, const Reduction& r);

// "d0 d1 -> d0": over sharded dims a pending sum remains. "d0 (d1) -> d0": the operation finishes the reduction itself.
ShardingRule pending_rule(const Attributes& attributes, const OperandTypes& operands);
ShardingRule inside_rule(const Attributes& attributes, const OperandTypes& operands);

// `reduced` with the reduced dims as dims of size one, to broadcast against the tensor before the reduction.
at::Tensor with_dims(at::Tensor reduced, const Reduction& r);

// run_sharded_reduction over r's dims: `whole(tensor)` on every slot, or `across(Prepared, ShardedReduction)` once.
template <class Whole, class AcrossFn>
Array reduce_inside(const Operation& operation, const Operand& x, const Reduction& r, Whole whole, AcrossFn&& across,
                    DType out = like_first) {
  return run_sharded_reduction(
      {.operation = operation, .attributes = r.attributes, .out_dtype = out, .where = x.where()}, {&x.array()},
      [&](Locals t, const BlockContext&) { return whole(t[0]); }, across);
}

}  // namespace tessera::detail
