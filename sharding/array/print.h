// Prints tensors as numpy does.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace tessera::detail {

// Returns what numpy's repr prints between "array(" and ")". Lines after the first are indented by `indent` spaces.
// - Rows are in brackets, columns are aligned, and lines have at most 75 characters.
// - Floats have the fewest digits that read back to the same value, at most 8 after the point. bfloat16 and float16
//   have the digits that their own precision needs. Values of very different magnitudes are in scientific notation.
// - Beyond 1000 elements, only the first and last three of each dimension are printed.
std::string values_text(const at::Tensor& tensor, int indent = 0);

}  // namespace tessera::detail
