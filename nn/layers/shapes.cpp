// Checks the inputs and options of layers, and composes their error messages.
#include "nn/layers/shapes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "sharding/base/fail.h"

namespace tessera::nn {

void check_there(const char* layer, const Param& param) {
  if (param.value.is_absent())
    fail(
        ErrorKind::missing_array, layer,
        "its parameter {} is absent: it was never set, was moved away, or a filter took it out of its tree. Set it, or "
        "combine the tree.",
        param.axes.to_string());
}

void check_there(const char* layer, const char* name, const Array& array) {
  if (array.is_absent())
    fail(ErrorKind::missing_array, layer,
         "{} is absent, expected an array. Make the layer with init, or combine the tree that a filter took it out of.",
         name);
}

void check_features(const char* layer, const Array& x, const Param& param, int dim) {
  check_there(layer, param);
  if (x.is_absent() || dim >= param.value.ndim()) return;
  const int64_t size = param.value.shape(dim);
  if (x.ndim() > 0 && x.shape(-1) == size) return;
  const bool named = dim < static_cast<int>(param.axes.size()) && !param.axes[dim].is_none();
  const std::string name = named ? param.axes[dim].name() : "features";
  const std::string& path = param.value.path();
  fail(ErrorKind::shape_mismatch, layer, "{}{}given {}, expected (..., {}) with {} = {}.", path,
       path.empty() ? "" : ": ", x.type_string(), name, name, size);
}

void check_floating(const char* layer, const Array& x) {
  if (is_floating(x.dtype())) return;
  fail(ErrorKind::dtype_mismatch, layer, "given {}, expected a floating type. Convert with astype.", x.type_string());
}

void check_dims(const char* layer, const Array& x, int ndim, const std::string& expected) {
  if (x.is_absent() || x.ndim() == ndim) return;
  fail(ErrorKind::shape_mismatch, layer, "given {}, expected {}.", x.type_string(), expected);
}

void check_places(const char* layer, const Array& x, int spatial) {
  for (int d = x.ndim() - 1 - spatial; d < x.ndim() - 1; ++d)
    if (x.shape(d) == 0)
      fail(ErrorKind::shape_mismatch, layer, "given {}, expected one place or more in every spatial dim.",
           x.type_string());
}

bool broadcasts_to(const Shape& from, const Shape& to) {
  if (from.size() > to.size()) return false;
  return std::equal(from.rbegin(), from.rend(), to.rbegin(), [](int64_t a, int64_t b) { return a == 1 || a == b; });
}

void check_broadcasts(const char* layer, const char* name, const Array& given, const Shape& logits) {
  if (!given.is_absent() && !broadcasts_to(given.shape(), logits))
    fail(ErrorKind::shape_mismatch, layer, "{} {}, expected to broadcast to (batch, heads, seq, keys) = ({}).", name,
         given.type_string(), fmt::join(logits, ", "));
}

void check_decodes(const char* layer, bool causal) {
  if (!causal)
    fail(ErrorKind::invalid_argument, fmt::format("{}.decode", layer),
         "the layer is not causal, so its result at a position depends on later positions. Make it with {.causal = "
         "true}.");
}

AxisName axis_of(const Param& param, int dim) {
  const int size = static_cast<int>(param.axes.size()), at = dim < 0 ? dim + size : dim;
  return at >= 0 && at < size ? param.axes[at] : AxisName(none);
}

Array initial(const char* layer, const char* option, const Initializer& initializer, const Key& key,
              const Shape& shape) {
  if (!initializer)
    fail(ErrorKind::invalid_argument, layer, "{} is empty, expected an initializer of nn::init.", option);
  Array x = initializer(key, shape);
  if (!x.is_absent() && x.shape() == shape) return x;
  fail(ErrorKind::shape_mismatch, layer, "{} gave {}, expected ({}), the requested shape.", option,
       x.is_absent() ? "an absent array" : x.type_string(), fmt::join(shape, ", "));
}

void check_axis(const char* layer, const Axis& axis) {
  if (axis.size < 0)
    fail(ErrorKind::invalid_argument, layer,
         "axis \"{}\" = {}, expected 0 or more. Give its size: Axis{{\"{}\", 512}}.", axis.name, axis.size, axis.name);
}

void check_positive(const char* layer, const char* what, int64_t value) {
  if (value < 1) fail(ErrorKind::invalid_argument, layer, "{} = {}, expected 1 or more.", what, value);
}

void check_eps(const char* layer, double eps) {
  if (!(eps >= 0 && std::isfinite(eps)))
    fail(ErrorKind::invalid_argument, layer, "eps = {}, expected a number of 0 or more.", eps);
}

void check_rate(const char* layer, double rate) {
  if (!(rate >= 0 && rate <= 1))
    fail(ErrorKind::invalid_argument, layer, "dropout = {}, expected a rate of 0 to 1.", rate);
}

void check_divisor(const char* layer, const char* field, int64_t value, int64_t features, std::string_view whose) {
  if (value < 1 || features % value)
    fail(ErrorKind::invalid_argument, layer, "{} = {}, expected a divisor of the {} features{}.", field, value,
         features, whose);
}

}  // namespace tessera::nn
