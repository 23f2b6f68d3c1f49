// Windows that slide over spatial dims: their sizes, the padding around, and what they reach of neighbours' blocks.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/DimVector.h>

#include <string>

#include "sharding/operations/convolution.h"
#include "sharding/propagation/sharding_rule.h"

namespace tessera::detail {

using Sizes = c10::DimVector;

struct Windows {
  Sizes extents, strides;
  Sizes before, after;  // padding that a device writes out itself
  Sizes out;            // how many windows there are
  Sizes blocks;         // into how many blocks a dim is cut, each with the places that its own windows reach
  Sizes lead;           // how many places the first window reaches out in front of its dim
};

[[noreturn]] void misfit(const char* verb, const std::string& why);

// `given`, or ones. Error (shape_mismatch) unless they are n sizes from 1.
Sizes given_or_ones(const char* verb, const char* what, at::IntArrayRef given, size_t n);

// Windows of these extents over dims of these sizes. Errors (shape_mismatch): one that has no place.
Windows windows_over(const char* verb, const Sizes& sizes, const Sizes& extents, Sizes strides, const Padding& padding);

// The blocks of an array of this type, of which dim dims[i] is spatial dim i. Dims whose windows do not divide, or that
// are cut by `others`, are one block.
void cut_like(const Type& x, at::IntArrayRef dims, AxisSet others, Windows& windows);

// x with each spatial dim of several blocks as what the windows of each block reach, in `made`: halos come from the
// neighbours, `fill` stands for the padding. Where no dim has several blocks it is x itself.
const Array& with_halos(const Operation& operation, const Operand& x, at::IntArrayRef dims, const Windows& windows,
                        double fill, Array& made);

// The rule's factors of a spatial dim d, and of the windows over it.
std::string spatial_term(size_t d, int64_t blocks);
std::string windows_term(size_t d, int64_t blocks, int64_t windows);

// (..., spatial dims) with the padding written out, and whether there is none to write.
bool is_unpadded(const Windows& windows);
at::Tensor padded(at::Tensor x, const Windows& windows, double value);

}  // namespace tessera::detail
