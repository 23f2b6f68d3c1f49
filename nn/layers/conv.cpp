// Convolutions, all computed by conv_general_dilated.
#include "nn/layers/conv.h"

#include "nn/layers/shapes.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/shape/creation.h"

namespace tessera::nn {

namespace {

using Sizes = std::vector<int64_t>;

void check_options(const char* layer, const Axis& in, const Axis& out, const Sizes& kernel_size, int64_t groups) {
  if (kernel_size.empty() || kernel_size.size() > 3)
    fail(ErrorKind::invalid_argument, layer, "{} kernel sizes given, expected one for each of 1 to 3 spatial dims.",
         kernel_size.size());
  check_axis(layer, in), check_axis(layer, out);
  for (int64_t size : kernel_size) check_positive(layer, "a kernel size", size);
  if (groups < 1 || in.size % groups || out.size % groups)
    fail(ErrorKind::invalid_argument, layer,
         "axes \"{}\" = {} and \"{}\" = {} are not both divisible by {} groups. Change one of them.", in.name, in.size,
         out.name, out.size, groups);
}

bool is_padding(const std::string& name, bool transposed) {
  return name.empty() || name == "SAME" || name == "VALID" || (name == "SAME_LOWER" && !transposed);
}

void check_values(const char* layer, const Sizes& strides, const Sizes& dilation) {
  for (int64_t stride : strides) check_positive(layer, "a stride", stride);
  for (int64_t each : dilation) check_positive(layer, "a dilation", each);
}

void check_count(const char* layer, const char* what, const Sizes& given, size_t spatial) {
  if (given.size() != spatial)
    fail(ErrorKind::invalid_argument, layer, "{} {} given, expected one for each of {} spatial dims.", given.size(),
         what, spatial);
}

template <class Layer>
Layer made(const char* name, const Key& key, const Axis& in, const Axis& out, const Sizes& kernel_size,
           const ConvOptions& o) {
  check_options(name, in, out, kernel_size, o.groups);
  for (const auto& [what, given] : {std::pair("strides", &o.strides), std::pair("dilations", &o.dilation)})
    if (!given->empty()) check_count(name, what, *given, kernel_size.size());
  constexpr bool transposed = std::is_same_v<Layer, ConvTranspose>;
  if (!is_padding(o.padding.name(), transposed))
    fail(ErrorKind::invalid_argument, name, "padding \"{}\" given, expected SAME,{} VALID or pairs.", o.padding.name(),
         transposed ? "" : " SAME_LOWER,");
  check_values(name, o.strides, o.dilation);
  Shape shape = kernel_size;
  shape.insert(shape.end(), {in.size / o.groups, out.size});
  Axes axes(std::vector<AxisName>(kernel_size.size(), none));
  axes.push_back(o.groups == 1 ? AxisName(in) : AxisName(none));
  axes.push_back(out);
  const Sizes one(kernel_size.size(), 1);
  Layer layer{.kernel = {o.dtypes.param(initial(name, "kernel_init", o.kernel_init, key, shape)), axes},
              .bias = {},
              .strides = o.strides.empty() ? one : o.strides,
              .dilation = o.dilation.empty() ? one : o.dilation,
              .padding = {o.padding.name(), o.padding.pairs()},
              .groups = o.groups,
              .dtypes = o.dtypes};
  if (o.bias) layer.bias = Param{o.dtypes.param(zeros({out.size})), {out}};
  return layer;
}

template <class Layer>
void check_input(const char* name, const Layer& layer, const Array& x) {
  check_there(name, layer.kernel);
  const Array& kernel = layer.kernel;
  const size_t spatial = kernel.ndim() - 2;
  check_count(name, "strides", layer.strides, spatial), check_count(name, "dilations", layer.dilation, spatial);
  check_values(name, layer.strides, layer.dilation);
  check_divisor(name, "groups", layer.groups, kernel.shape(-1), " of its kernel");
  if (x.is_absent()) return;
  const int64_t features = kernel.shape(-2) * layer.groups;
  if (x.ndim() == kernel.ndim() && x.shape(-1) == features) return check_places(name, x, kernel.ndim() - 2);
  fail(ErrorKind::shape_mismatch, name, "given {}, expected (batch, {} spatial dims, features) with {} features.",
       x.type_string(), kernel.ndim() - 2, features);
}

template <class Layer>
Array convolved(const Layer& layer, const Array& x, const Sizes& strides, const Sizes& spread, const Padding& padding) {
  const std::string spatial = std::string("HWD").substr(0, layer.strides.size());
  const DType type = layer.dtypes.compute.value_or(promote(x.dtype(), layer.kernel.value.dtype()));
  Array y = conv_general_dilated(astype(x, type), astype(layer.kernel, type), strides, padding,
                                 {.lhs_dilation = spread,
                                  .rhs_dilation = layer.dilation,
                                  .dimension_numbers = {"N" + spatial + "C", spatial + "IO", "N" + spatial + "C"},
                                  .feature_group_count = layer.groups});
  if (layer.bias) y = y + layer.dtypes.in(*layer.bias);
  return layer.dtypes.out(y);
}

// Returns the padding of jax.lax.conv_transpose by name, for a kernel that spans `span` positions.
std::pair<int64_t, int64_t> transposed_padding(const std::string& name, int64_t span, int64_t stride) {
  if (name == "VALID") return {span - 1, stride - 1 + std::max<int64_t>(span - stride, 0)};
  if (name != "SAME")
    fail(ErrorKind::invalid_argument, "ConvTranspose", "padding \"{}\" given, expected SAME, VALID or pairs.", name);
  const int64_t total = span + stride - 2, before = stride > span - 1 ? span - 1 : (total + 1) / 2;
  return {before, total - before};
}

}  // namespace

Conv Conv::init(const Key& key, const Axis& in, const Axis& out, const Sizes& kernel_size, const ConvOptions& options) {
  return made<Conv>("Conv", key, in, out, kernel_size, options);
}

Array Conv::operator()(Operand x) const {
  const LayerScope scope(*this, x);
  check_input("Conv", *this, x.array());
  return convolved(*this, x.array(), strides, {}, padding);
}

ConvTranspose ConvTranspose::init(const Key& key, const Axis& in, const Axis& out, const Sizes& kernel_size,
                                  const ConvOptions& options) {
  return made<ConvTranspose>("ConvTranspose", key, in, out, kernel_size, options);
}

Array ConvTranspose::operator()(Operand x) const {
  const LayerScope scope(*this, x);
  check_input("ConvTranspose", *this, x.array());
  std::vector<std::pair<int64_t, int64_t>> pairs = padding.pairs;
  for (size_t d = 0; !padding.name.empty() && d < strides.size(); ++d)
    pairs.push_back(transposed_padding(padding.name, dilation[d] * (kernel.value.shape(int(d)) - 1) + 1, strides[d]));
  return convolved(*this, x.array(), Sizes(strides.size(), 1), strides, Padding(pairs));
}

}  // namespace tessera::nn
