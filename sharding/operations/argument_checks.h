// What the files of operations share: checked dims and indices, names for factors, floating operands.
#pragma once

#include <string>
#include <vector>

#include "sharding/operations/operand.h"

namespace tessera::detail {

// d0, d1, ...: a factor for each of n dims.
std::vector<std::string> letters(size_t n);

// `dim` of x counted from the front. Error (bad_argument) if x has no such dim.
int checked_dim(const char* verb, const Array& x, int dim);

// x, in float32 if it holds integers or booleans: for results that cannot be integers.
Array as_floating(const Operand& x);

// Error (dtype_mismatch) unless x, called `what` there, holds integers.
void check_integers(const char* verb, const Array& x, const char* what);

// The result of an operation where its options want it. Error (device_mismatch) if it lies on no mesh.
Array placed_result(Array result, const ResultOptions& options, const char* verb, std::source_location where);

// Integers in [0, size) as LibTorch indexes with them. Error (bad_argument) if some lie outside. Of a tensor without
// data nothing is checked.
at::Tensor indices(const char* verb, const at::Tensor& integers, int64_t size);
// The same, where 32 bits do as well.
at::Tensor narrow_indices(const char* verb, const at::Tensor& integers, int64_t size);
// Integers in [-size, size), where those below zero count from the end.
at::Tensor wrapped_indices(const char* verb, const at::Tensor& integers, int64_t size);

}  // namespace tessera::detail
