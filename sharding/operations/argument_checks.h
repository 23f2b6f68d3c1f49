// What the files of operations share: checked dims and indices, floating operands.
#pragma once

#include "sharding/operations/operand.h"

namespace tessera::detail {

// `dim` of x counted from the front. Error (invalid_argument) if x has no such dim.
int checked_dim(const char* verb, const Array& x, int dim);

// x, in float32 if it holds integers or booleans: for results that cannot be integers.
Array as_floating(const Operand& x);

// Error (dtype_mismatch) unless x, named `what` in the message, holds integers, or is of a floating type.
void check_integers(const char* verb, const Array& x, const char* what);
void check_floating(const char* verb, const Array& x, const char* what);

// `result`, brought to options.out_sharding if that is given. Error (device_mismatch): `result` lies on no mesh.
Array placed_result(Array result, const ResultOptions& options, const char* verb, std::source_location where);

// `integers` as int64, for LibTorch to index with. Error (invalid_argument) if some lie outside [0, size); a tensor
// without data is not checked. On an accelerator the error comes late (array/late_checks.h).
at::Tensor indices(const char* verb, const at::Tensor& integers, int64_t size);
// The same for kernels that take int32 as well: int32 stays int32.
at::Tensor narrow_indices(const char* verb, const at::Tensor& integers, int64_t size);
// The same for integers in [-size, size), of which negative ones count from the end.
at::Tensor wrapped_indices(const char* verb, const at::Tensor& integers, int64_t size);

}  // namespace tessera::detail
