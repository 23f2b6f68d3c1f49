// Shape functions for operations that LibTorch cannot run without data, and FLOP counts of operations.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace tessera::detail {

using Values = std::vector<c10::IValue>;

// Makes an operation's results without data from its arguments.
using ShapeFunction = Values (*)(c10::ArrayRef<c10::IValue> arguments);

// Returns the shape function of the operation with this name ("aten::where.self"); null if LibTorch's own works.
ShapeFunction shape_function(const std::string& operation);

// Returns the floating-point operations of one call. Only matrix products, convolutions and attention count; others are
// 0.
double flops_of(const std::string& operation, c10::ArrayRef<c10::IValue> arguments);

}  // namespace tessera::detail
