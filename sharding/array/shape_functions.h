// Shapes of results for the operations that LibTorch computes from data only, and the cost of all that multiply.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

namespace tessera::detail {

using Values = std::vector<c10::IValue>;

// From an operation's arguments to its results.
using ShapeFunction = Values (*)(c10::ArrayRef<c10::IValue> arguments);

// Of the operation with this name ("aten::where.self"); null if LibTorch's own will do.
ShapeFunction shape_function(const std::string& operation);

// Floating point operations of one call; zero for what multiplies no matrices.
double flops_of(const std::string& operation, c10::ArrayRef<c10::IValue> arguments);

}  // namespace tessera::detail
