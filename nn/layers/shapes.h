// The scope of a layer's call, and checks of its inputs, parameters and options, with their error messages.
#pragma once

#include <source_location>
#include <string>
#include <string_view>

#include "nn/layers/init.h"
#include "nn/layers/module_scope.h"
#include "nn/tree/param.h"
#include "sharding/base/caller.h"
#include "sharding/operations/operand.h"

namespace tessera::nn {

// Scope of a layer's call with `x`. Communication in it is recorded with the source line that made x an operand, and
// with the layer's path.
class LayerScope {
 public:
  template <class Layer>
  LayerScope(const Layer& layer, const Operand& x, std::source_location here = std::source_location::current())
      : caller_(x.where(), here), module_(layer) {}

 private:
  CallerScope caller_;
  ModuleScope module_;
};

// Throws Error (shape_mismatch) unless the last dimension of x has the size of dimension `dim` of the parameter. The
// message names the layer and, if the parameter was placed, its path:
//   "[Linear] up.kernel: given float32[3,7], expected (..., embed) with embed = 8."
// An absent x passes, because the operation rejects it.
void check_features(const char* layer, const Array& x, const Param& param, int dim = 0);
// Throws Error (missing_array) if the parameter was filtered out. check_features checks this, too.
void check_there(const char* layer, const Param& param);
// Throws the same error for any array of a layer; `name` is the array's field: "[BatchNorm] mean is absent, ...".
void check_there(const char* layer, const char* name, const Array& array);
// Throws Error (dtype_mismatch) unless x is of a floating type.
void check_floating(const char* layer, const Array& x);
// Throws Error (shape_mismatch) unless x has `ndim` dimensions; an absent x passes.
void check_dims(const char* layer, const Array& x, int ndim, const std::string& expected);

// Throws Error (shape_mismatch) if one of the `spatial` dimensions before the last one has size 0.
void check_places(const char* layer, const Array& x, int spatial);

// Returns true if x of shape `from` broadcasts to `to`.
bool broadcasts_to(const Shape& from, const Shape& to);

// Throws Error (shape_mismatch) unless a mask or bias, if given, broadcasts to the shape of an attention's logits.
void check_broadcasts(const char* layer, const char* name, const Array& given, const Shape& logits);
// Throws Error (invalid_argument) unless an attention layer that decodes is causal.
void check_decodes(const char* layer, bool causal);

// Returns the name of dimension `dim` of a parameter (negative: from the end); none if its axes do not name it.
AxisName axis_of(const Param& param, int dim);
// Calls the initializer. Throws if it is empty, or if its result is absent or does not have this shape.
Array initial(const char* layer, const char* option, const Initializer& initializer, const Key& key,
              const Shape& shape);

// Throws Error (invalid_argument) unless the size is 0 or more.
void check_axis(const char* layer, const Axis& axis);
// Throws Error (invalid_argument) unless the value is 1 or more.
void check_positive(const char* layer, const char* what, int64_t value);
// Throws Error (invalid_argument) unless eps is finite and 0 or more.
void check_eps(const char* layer, double eps);
// Throws Error (invalid_argument) unless the rate is from 0 to 1.
void check_rate(const char* layer, double rate);
// Throws Error (invalid_argument) unless the value is 1 or more and divides `features`.
void check_divisor(const char* layer, const char* field, int64_t value, int64_t features, std::string_view whose = "");

}  // namespace tessera::nn
