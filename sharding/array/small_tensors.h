// Short tensors, as the blocks of ZeRO-1 and FSDP are, and views: the dispatcher takes longer than their elements.
#pragma once

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// Whether its elements lie in a row in the memory of the CPU, and are so few that it pays to pass the dispatcher by.
bool is_short(const at::Tensor& t);
// Of any tensor a contiguous copy, that nothing is recorded of.
at::Tensor copy_of(const at::Tensor& t);
// The blocks, of one shape, joined along `dim`.
at::Tensor joined(const Tensors& blocks, int dim);

// For who records nothing:

// A view of these sizes and strides, from element `offset` of the memory on.
at::Tensor view_of(const at::Tensor& t, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset);
// A view of block i of n along `dim`, and the same made contiguous.
at::Tensor block(const at::Tensor& t, int dim, int i, int n);
at::Tensor contiguous_block(const at::Tensor& t, int dim, int i, int n);
// t.reshape(sizes).
at::Tensor reshaped(const at::Tensor& t, at::IntArrayRef sizes);
// matrix.t(), and a contiguous copy of it.
at::Tensor transposed(const at::Tensor& matrix);
at::Tensor transposed_copy(const at::Tensor& matrix);

}  // namespace tessera::detail
