// Result shapes of the operations that LibTorch cannot do without data, and the floating point operations of all.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace tessera::detail {

using Values = std::vector<c10::IValue>;

// Makes an operation's results, without data, from its arguments.
using ShapeFunction = Values (*)(c10::ArrayRef<c10::IValue> arguments);

// The shape function of the operation with this name ("aten::where.self"); null if LibTorch's own suffices.
ShapeFunction shape_function(const std::string& operation);

// Floating point operations of one call; zero unless it is a matrix product, a convolution or attention.
double flops_of(const std::string& operation, c10::ArrayRef<c10::IValue> arguments);

}  // namespace tessera::detail
