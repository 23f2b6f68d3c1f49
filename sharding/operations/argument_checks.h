// Checks of dimensions, indices and element types, and conversions, that several operations use.
#pragma once

#include "sharding/operations/operand.h"

namespace tessera::detail {

// Returns `dim` of x counted from the front. Error (invalid_argument) if x has no such dimension.
int checked_dim(const char* verb, const Array& x, int dim);

// Returns x, in float32 if it holds integers or booleans: for results that cannot be integers.
Array as_floating(const Operand& x);
// Returns the type in which losses and weights are summed: float32, since half precision cannot count to 10,000;
// float64 for float64.
inline DType sum_dtype(DType dtype) { return dtype == float64 ? float64 : float32; }

// Throw an Error (dtype_mismatch) unless x, named `what` in the message, holds integers, or has a floating type.
void check_integers(const char* verb, const Array& x, const char* what);
void check_floating(const char* verb, const Array& x, const char* what);

// Returns `result`, resharded to options.out_sharding if that is given. Error (device_mismatch): `result` is on no
// mesh.
Array placed_result(Array result, const ResultOptions& options, const char* verb, std::source_location where);

// Returns `integers` as int64, for LibTorch's indexing. Error (invalid_argument) if some are outside [0, size); a
// tensor without data is not checked. On an accelerator the error comes late (array/late_checks.h).
at::Tensor indices(const char* verb, const at::Tensor& integers, int64_t size);
// Returns `integers` as indices() does, for kernels that also take int32: int32 stays int32.
at::Tensor narrow_indices(const char* verb, const at::Tensor& integers, int64_t size);
// Returns `integers` in [-size, size) as indices() does. Negative ones count from the end.
at::Tensor wrapped_indices(const char* verb, const at::Tensor& integers, int64_t size);

}  // namespace tessera::detail
