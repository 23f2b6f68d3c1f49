// Windows that slide over spatial dims: sizes, padding, and the halos that they need from adjacent blocks.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/DimVector.h>

#include <string>

#include "sharding/operations/neural/convolution.h"
#include "sharding/propagation/sharding_rule.h"

namespace tessera::detail {

using Sizes = c10::DimVector;

struct Windows {
  Sizes extents, strides;
  Sizes before, after;  // padding that a device adds to its local tensor; 0 where with_halos adds it
  Sizes out;            // how many windows there are
  Sizes blocks;         // into how many blocks the dim is cut
  Sizes lead;           // how many elements the first window begins before the dim
};

// `given`, or n ones if it is empty. Error (shape_mismatch) unless `given` has n sizes of at least 1.
Sizes given_or_ones(const char* verb, const char* what, at::IntArrayRef given, size_t n);

// Windows of these extents over dims of these sizes. Error (shape_mismatch): a window that does not fit.
Windows windows_over(const char* verb, const Sizes& sizes, const Sizes& extents, Sizes strides, const Padding& padding);

// Cuts the windows into blocks as x is sharded, where dim dims[i] of x is spatial dim i. A dim stays one block if its
// number of windows does not divide, or if one of the mesh axes `others` shards it.
void cut_like(const Type& x, at::IntArrayRef dims, AxisSet others, Windows& windows);

// x with every block of a sharded spatial dim extended to all elements that its windows need: halos come from
// adjacent blocks, padding is `fill`. The result is stored in `made`; it is x itself if no dim has several blocks.
const Array& with_halos(const Operation& operation, const Operand& x, at::IntArrayRef dims, const Windows& windows,
                        double fill, Array& made);

// Of a rule: of each spatial dim the blocks and the windows as attributes; spatial dim d, and the windows over it.
void add_windows(Attributes& attributes, const Windows& windows);
RuleDim spatial_dim(size_t d, int64_t blocks);
RuleDim windows_dim(size_t d, int64_t blocks, int64_t windows);

// Whether there is no padding to add; and x (..., spatial dims) with the padding added.
bool is_unpadded(const Windows& windows);
at::Tensor padded(at::Tensor x, const Windows& windows, double value);

}  // namespace tessera::detail
