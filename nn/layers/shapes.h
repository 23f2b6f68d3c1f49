// What layers say about inputs that do not fit them.
#pragma once

#include <string>
#include <string_view>

#include "nn/layers/init.h"
#include "nn/tree/param.h"

namespace tessera::nn {

// Errors (shape_mismatch) that name the layer and, once it is placed, its parameter:
// "[Linear] up.kernel: given float32[3,7], expected (..., embed) with embed = 8."
// The last dim of x is to have the size of dim `dim` of the parameter; an absent x is left to the operation.
void check_features(const char* layer, const Array& x, const Param& param, int dim = 0);
// Error (absent): the parameter was filtered out. check_features asks, too.
void check_there(const char* layer, const Param& param);
// And one that asks an array of the layer for itself: "[BatchNorm] mean is absent, ...".
void check_there(const char* layer, const char* name, const Array& array);
// x is to be of a floating type (dtype_mismatch).
void check_floating(const char* layer, const Array& x);
// x is to have so many dims.
void check_dims(const char* layer, const Array& x, int ndim, const std::string& expected);

// The `spatial` dims before the last one are to have one place or more.
void check_places(const char* layer, const Array& x, int spatial);

// Whether x of shape `from` broadcasts to `to`.
bool broadcasts_to(const Shape& from, const Shape& to);

// What dim `dim` of a parameter is called, the last one if -1; none where its axes do not say.
AxisName axis_of(const Param& param, int dim);
// What an initializer gives. Errors: none given, an absent array or another shape than the one asked for.
Array initial(const char* layer, const char* option, const Initializer& initializer, const Key& key,
              const Shape& shape);

// An Error (bad_argument) unless its size is 0 or more.
void check_axis(const char* layer, const Axis& axis);
// Unless it is 1 or more.
void check_positive(const char* layer, const char* what, int64_t value);
// Unless it is finite and 0 or more.
void check_eps(const char* layer, double eps);
// Unless it is from 0 to 1.
void check_rate(const char* layer, double rate);
// Unless it is 1 or more and divides them.
void check_divisor(const char* layer, const char* field, int64_t value, int64_t features, std::string_view whose = "");

}  // namespace tessera::nn
