// Values as numpy prints them.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace tessera::detail {

// What numpy's repr has between "array(" and ")", each line but the first indented by `indent` blanks: rows in
// brackets, columns aligned, lines of at most 75 characters, floats with the fewest digits that read back to the same
// value (at most 8 behind the point), in scientific notation if their magnitudes differ much; past 1000 elements, the
// first and last three of each dim. bfloat16 and float16 have the digits that their own precision needs.
std::string values_text(const at::Tensor& tensor, int indent = 0);

}  // namespace tessera::detail
