// Padding: the zeros behind the end of a dim that its mesh axes do not divide (Uneven::pad), in devices' memory only.
#pragma once

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// The values of a block, without its padding, as a view; and back, with zeros.
at::Tensor without_padding(const at::Tensor& block, const IndexRanges& values);
at::Tensor with_padding(const at::Tensor& values, const Shape& local);

// The dim made longer with zeros until it is `size` long; t itself where it is.
at::Tensor lengthened(const at::Tensor& t, int dim, int64_t size);

// Writes zeros into the padding, in place and outside every graph. `slots` are those of the tensors. (Tensors of an
// abstract mesh have no values.)
void clear_padding(const Type* type, AxisSet slots, const Tensors& local);

// The local tensors of `a` for an operation to read: with `fill` in the padding of the dims in the set `dims`
// (infinity: the element type's lowest or highest value), zeros in that of the others. Recorded: no gradient comes back
// from the padding, whatever the operation makes of it.
Tensors padded_operand(const char* operation, const ArrayImpl& a, double fill, uint64_t dims);

// Expands an operand without the result's padded dims to the shape of the result's blocks, one tensor for each slot.
// Recorded: the padding adds nothing to the operand's gradient.
Tensors expanded_over_padding(const char* operation, const Tensors& local, const Type* result, AxisSet slots);

// Whether all of the padding is zeros, as it has to be between operations.
bool has_clear_padding(const ArrayImpl& a);

}  // namespace tessera::detail
