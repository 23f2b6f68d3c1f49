// Windows that slide over spatial dimensions: sizes, padding, and the halos that they need from adjacent blocks.
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
  Sizes out;            // the number of windows
  Sizes blocks;         // the number of blocks into which the dimension is sharded
  Sizes lead;           // the number of elements before the dimension at which the first window begins
};

// Returns `given`, or n ones if it is empty. Error (shape_mismatch) unless `given` has n sizes of at least 1.
Sizes given_or_ones(const char* verb, const char* what, at::IntArrayRef given, size_t n);

// Returns the windows of these extents over dimensions of these sizes. Error (shape_mismatch): a window that does not
// fit.
Windows windows_over(const char* verb, const Sizes& sizes, const Sizes& extents, Sizes strides, const Padding& padding);

// Splits the windows into blocks as x is sharded; dimension dims[i] of x is spatial dimension i. A dimension stays one
// block if its mesh axes do not divide its number of windows, or if one of the mesh axes `others` shards it.
void cut_like(const Type& x, at::IntArrayRef dims, AxisSet others, Windows& windows);

// Returns x with every block of a sharded spatial dimension extended to all elements that its windows need. Halos come
// from adjacent blocks, and padding is `fill`. The result is stored in `made`; it is x itself if no dimension has
// several blocks.
const Array& with_halos(const Operation& operation, const Operand& x, at::IntArrayRef dims, const Windows& windows,
                        double fill, Array& made);

// Parts of a rule: the blocks and windows of each spatial dimension as attributes; spatial dimension d; the windows
// over it.
void add_windows(Attributes& attributes, const Windows& windows);
RuleDim spatial_dim(size_t d, int64_t blocks);
RuleDim windows_dim(size_t d, int64_t blocks, int64_t windows);

// is_unpadded returns true if there is no padding to add. padded returns x (..., spatial dimensions) with padding.
bool is_unpadded(const Windows& windows);
at::Tensor padded(at::Tensor x, const Windows& windows, double value);

}  // namespace tessera::detail
