// The dimensions of a reduction: checked, written as a rule, and restored as dimensions of size one.
#pragma once

#include <ATen/core/Tensor.h>

#include "sharding/operations/argument_checks.h"
#include "sharding/propagation/run.h"
#include "sharding/propagation/sharded_reduction.h"

namespace tessera::detail {

struct Reduction {
  c10::DimVector dims;  // ascending
  bool keepdims = false;
  Attributes attributes;  // keepdims, then the dimensions
};

// Checks the dimensions; empty `dims` mean all. Errors (invalid_argument): a dimension that x lacks or that is given
// twice.
Reduction checked_reduction(const char* verb, const Array& x, const Dims& dims, bool keepdims);
// Checks the dimensions of an operation without an identity. Error (invalid_argument): the result has elements, but
// there is nothing to reduce.
Reduction nonempty_reduction(const char* verb, const Array& x, const Dims& dims, bool keepdims);

// Returns the number of elements of x that are reduced to one element of the result.
int64_t elements_of(const Array& x, const Reduction& r);

// pending_rule returns "d0 d1 -> d0", which leaves a partial sum over sharded dimensions. inside_rule returns "d0 (d1)
// -> d0", in which the operation finishes the reduction itself.
ShardingRule pending_rule(const Attributes& attributes, const OperandTypes& operands);
ShardingRule inside_rule(const Attributes& attributes, const OperandTypes& operands);

// Returns `reduced` with the reduced dimensions as dimensions of size one, to broadcast against the tensor before the
// reduction.
at::Tensor with_dims(at::Tensor reduced, const Reduction& r);

// Runs run_sharded_reduction over r's dimensions: `whole(tensor)` on every slot, or `across(Prepared,
// ShardedReduction)` once.
template <class Whole, class AcrossFn>
Array reduce_inside(const Operation& operation, const Operand& x, const Reduction& r, Whole whole, AcrossFn&& across,
                    DType out = like_first) {
  return run_sharded_reduction(
      {.operation = operation, .attributes = r.attributes, .out_dtype = out, .where = x.where()}, {&x.array()},
      [&](Locals t, const BlockContext&) { return whole(t[0]); }, across);
}

}  // namespace tessera::detail
