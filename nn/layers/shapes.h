// Checks that layers make of their inputs, parameters and options, with their error messages.
#pragma once

#include <string>
#include <string_view>

#include "nn/layers/init.h"
#include "nn/tree/param.h"

namespace tessera::nn {

// Error (shape_mismatch) unless the last dim of x has the size of dim `dim` of the parameter. It names the layer and,
// if the parameter was placed, its path:
//   "[Linear] up.kernel: given float32[3,7], expected (..., embed) with embed = 8."
// An absent x passes; the operation refuses it.
void check_features(const char* layer, const Array& x, const Param& param, int dim = 0);
// Error (missing_array): the parameter was filtered out. check_features checks this, too.
void check_there(const char* layer, const Param& param);
// The same for any array of a layer, by the name of its field: "[BatchNorm] mean is absent, ...".
void check_there(const char* layer, const char* name, const Array& array);
// Error (dtype_mismatch) unless x is of a floating type.
void check_floating(const char* layer, const Array& x);
// Error (shape_mismatch) unless x has `ndim` dims; an absent x passes.
void check_dims(const char* layer, const Array& x, int ndim, const std::string& expected);

// Error (shape_mismatch) if one of the `spatial` dims before the last one has size 0.
void check_places(const char* layer, const Array& x, int spatial);

// Whether x of shape `from` broadcasts to `to`.
bool broadcasts_to(const Shape& from, const Shape& to);

// The name of dim `dim` of a parameter (negative: from the end); none if its axes do not name it.
AxisName axis_of(const Param& param, int dim);
// Calls the initializer. Errors: it is empty, its result is absent or has another shape than `shape`.
Array initial(const char* layer, const char* option, const Initializer& initializer, const Key& key,
              const Shape& shape);

// Error (invalid_argument) unless the size is 0 or more.
void check_axis(const char* layer, const Axis& axis);
// Error (invalid_argument) unless the value is 1 or more.
void check_positive(const char* layer, const char* what, int64_t value);
// Error (invalid_argument) unless eps is finite and 0 or more.
void check_eps(const char* layer, double eps);
// Error (invalid_argument) unless the rate is from 0 to 1.
void check_rate(const char* layer, double rate);
// Error (invalid_argument) unless the value is 1 or more and divides `features`.
void check_divisor(const char* layer, const char* field, int64_t value, int64_t features, std::string_view whose = "");

}  // namespace tessera::nn
