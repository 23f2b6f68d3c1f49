// fold: the parts of several processes made one, always in the processes' order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "sharding/runtime/process_group.h"

namespace tessera::detail {

// The type in which a fold of such tensors is taken; as in the local engine, small sums in double, half precision in
// float.
at::ScalarType fold_type(const at::Tensor& t, ReduceOp how);

// In that type. The first part is destroyed.
at::Tensor folded(const std::vector<at::Tensor>& parts, ReduceOp how, at::ScalarType type);
// The same into `result`, rounded once. It is not among the parts unless it comes first or is the second of two.
void fold(const std::vector<at::Tensor>& parts, ReduceOp how, at::ScalarType type, at::Tensor result);

// n consecutive views of a flat tensor, of as nearly equal lengths as can be.
std::vector<at::Tensor> cut_evenly(const at::Tensor& flat, int64_t n);

}  // namespace tessera::detail
