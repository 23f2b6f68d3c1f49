// What layers say about inputs that do not fit them.
#pragma once

#include <string>

#include "nn/param.h"

namespace tessera::nn {

// Errors (shape_mismatch) that name the layer and, once it is placed, its parameter:
// "[Linear] up.kernel: given float32[3,7], expected (..., embed) with embed = 8."
// The last dim of x is to have the size of dim `dim` of the parameter; an absent x is left to the operation.
void check_features(const char* layer, const Array& x, const Param& param, int dim = 0);
// Error (absent): the parameter was filtered out. check_features asks, too.
void check_there(const char* layer, const Param& param);
// x is to be of a floating type (dtype_mismatch).
void check_floating(const char* layer, const Array& x);
// x is to have so many dims.
void check_dims(const char* layer, const Array& x, int ndim, const std::string& expected);

// The `spatial` dims before the last one are to have one place or more.
void check_places(const char* layer, const Array& x, int spatial);

// An Error (bad_argument) unless it is 1 or more.
void check_positive(const char* layer, const char* what, int64_t value);
// And unless it is finite and 0 or more.
void check_eps(const char* layer, double eps);
// And unless it is from 0 to 1.
void check_rate(const char* layer, double rate);

}  // namespace tessera::nn
