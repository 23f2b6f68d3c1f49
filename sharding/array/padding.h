// Padding of local shards: zeros after the end of a dimension that its mesh axes do not divide (Uneven::pad).
#pragma once

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// Returns a view of a block's values, without padding.
at::Tensor without_padding(const at::Tensor& block, const IndexRanges& values);
at::Tensor with_padding(const at::Tensor& values, const Shape& local);

// Returns `t` with dimension `dim` extended by zeros to `size` elements; `t` itself if it has that many.
at::Tensor lengthened(const at::Tensor& t, int dim, int64_t size);

// Writes zeros into the padding, in place and outside every graph. `slots` describes the tensors (ArrayImpl::slots).
// Does nothing on an abstract mesh, whose tensors have no values.
void clear_padding(const Type* type, AxisSet slots, const Tensors& local);

// Returns the local tensors of `a` for an operation to read. Padding of the dimensions in the set `dims` has the value
// `fill`, other padding is zero. An infinite `fill` of an integer or bool array becomes the element type's lowest or
// highest value. Recorded: the padding's gradient is zero, whatever the operation does with it.
Tensors padded_operand(const char* operation, const ArrayImpl& a, double fill, uint64_t dims);

// Expands an operand that lacks the result's padded dimensions to the shape of the result's blocks, one tensor for each
// slot. Differentiable: padding contributes zero to the operand's gradient.
Tensors expanded_over_padding(const char* operation, const Tensors& local, const Type* result, AxisSet slots);

// Returns whether all padding is zero, as it must be between operations.
bool has_clear_padding(const ArrayImpl& a);

}  // namespace tessera::detail
