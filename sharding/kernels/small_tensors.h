// Copies and views of small CPU tensors, for which the dispatcher takes longer than their elements.
#pragma once

#include "sharding/kernels/tensors.h"

namespace tessera::detail {

// Returns whether t is a contiguous CPU tensor so small that a loop over its elements beats a call of the dispatcher.
bool is_short(const at::Tensor& t);
// Returns a contiguous copy of any tensor, which autograd does not record.
at::Tensor copy_of(const at::Tensor& t);
// Returns the blocks, of one shape, joined along `dim`.
at::Tensor joined(const Tensors& blocks, int dim);

// The views below are not recorded by autograd.

// Returns a view with these sizes and strides that begins at element `offset` of the storage.
at::Tensor view_of(const at::Tensor& t, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset);
// Returns a view of block i of n along `dim`, or a contiguous copy of the block.
at::Tensor block(const at::Tensor& t, int dim, int i, int n);
at::Tensor contiguous_block(const at::Tensor& t, int dim, int i, int n);
// Returns t.reshape(sizes).
at::Tensor reshaped(const at::Tensor& t, at::IntArrayRef sizes);
// Returns matrix.t(), or a contiguous copy of the transpose.
at::Tensor transposed(const at::Tensor& matrix);
at::Tensor transposed_copy(const at::Tensor& matrix);

}  // namespace tessera::detail
