// The table of shape functions, for kernels that LibTorch's C++ lacks on the meta device.
#include "sharding/array/shape_functions.h"

#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/result_type_native.h>

#include <unordered_map>

namespace tessera::detail {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

std::vector<int64_t> sizes_of(const c10::IValue& tensor) { return tensor.toTensor().sizes().vec(); }

at::Tensor made(at::IntArrayRef sizes, const at::Tensor& like) { return at::empty(sizes, like.options()); }

// Returns a contiguous result of the first argument's shape.
Values like_first(Arguments a) { return {made(a[0].toTensor().sizes(), a[0].toTensor())}; }

// ---- lookups

Values embedding(Arguments a) {
  std::vector<int64_t> sizes = sizes_of(a[1]);
  sizes.push_back(a[0].toTensor().size(1));
  return {made(sizes, a[0].toTensor())};
}

Values embedding_backward(Arguments a) {
  const at::Tensor gradient = a[0].toTensor();
  return {made({a[2].toInt(), gradient.size(-1)}, gradient)};
}

Values index_select(Arguments a) {
  const at::Tensor x = a[0].toTensor();
  std::vector<int64_t> sizes = x.sizes().vec();
  if (!sizes.empty()) sizes[c10::maybe_wrap_dim(a[1].toInt(), x.dim())] = a[2].toTensor().numel();
  return {made(sizes, x)};
}

// Replaces LibTorch's shape function, which reads the first added row and so fails if there are no rows.
Values index_add(Arguments a) { return {made(a[0].toTensor().sizes(), a[0].toTensor())}; }

Values where(Arguments a) {
  const at::Tensor condition = a[0].toTensor(), x = a[1].toTensor(), y = a[2].toTensor();
  const auto sizes = at::infer_size(at::infer_size(condition.sizes(), x.sizes()), y.sizes());
  return {at::empty(sizes, (x.is_meta() ? x : y).options().dtype(at::native::result_type(x, y)).device(at::kMeta))};
}

// ---- logic

Values logical(Arguments a) {
  const at::Tensor x = a[0].toTensor(), y = a[1].toTensor();
  return {at::empty(at::infer_size(x.sizes(), y.sizes()), (x.is_meta() ? x : y).options().dtype(at::kBool))};
}

Values logical_not(Arguments a) {
  return {at::empty(a[0].toTensor().sizes(), a[0].toTensor().options().dtype(at::kBool))};
}

Values in_place(Arguments a) { return {a[0]}; }

// ---- views: LibTorch's own, since 2.15, treat all tensors with DispatchKey::Fake as its fake tensors

at::Tensor view_of(const at::Tensor& t, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) {
  const at::TensorImpl& whole = *t.unsafeGetTensorImpl();
  auto view = whole.shallow_copy_and_detach(whole.version_counter(), /*allow_tensor_metadata_change=*/true);
  view->set_sizes_and_strides(sizes, strides, offset);
  return at::Tensor(std::move(view));
}

Values view(Arguments a) {
  const at::Tensor x = a[0].toTensor();
  const at::DimVector sizes = at::infer_size_dv(a[1].toIntVector(), x.numel());
  const auto strides = at::detail::computeStride(x.sizes(), x.strides(), sizes);
  TORCH_CHECK(strides, "view: sizes ", at::IntArrayRef(sizes), " of strides ", x.strides(), "; use reshape");
  return {view_of(x, sizes, *strides, x.storage_offset())};
}

Values as_strided(Arguments a) {
  const at::Tensor x = a[0].toTensor();
  const bool has_offset = a.size() > 3 && !a[3].isNone();
  return {view_of(x, a[1].toIntVector(), a[2].toIntVector(), has_offset ? a[3].toInt() : x.storage_offset())};
}

// ---- normalization: the CPU's kernel saves mean and 1 / deviation of each row

Values layer_norm(Arguments a) {
  const at::Tensor x = a[0].toTensor();
  std::vector<int64_t> rows = x.sizes().vec();
  std::fill(rows.end() - static_cast<ptrdiff_t>(a[1].toIntVector().size()), rows.end(), 1);
  return {made(x.sizes(), x), made(rows, x), made(rows, x)};
}

Values layer_norm_backward(Arguments a) {
  const auto wanted = a[7].toBoolList();
  const auto gradient = [&](bool is_wanted, const c10::IValue& like) {
    return is_wanted && like.isTensor() ? made(like.toTensor().sizes(), like.toTensor()) : at::Tensor();
  };
  return {gradient(wanted[0], a[1]), gradient(wanted[1], a[5]), gradient(wanted[2], a[6])};
}

// ---- convolution: (batch, in, ...) by (out, in of a group, ...), or transposed by (in, out of a group, ...)

Values convolution(Arguments a) {
  const at::Tensor x = a[0].toTensor(), kernel = a[1].toTensor();
  const auto stride = a[3].toIntVector(), padding = a[4].toIntVector(), dilation = a[5].toIntVector(),
             more = a[7].toIntVector();
  const bool transposed = a[6].toBool();
  std::vector<int64_t> sizes{x.size(0), transposed ? kernel.size(1) * a[8].toInt() : kernel.size(0)};
  for (int64_t d = 0; d < x.dim() - 2; ++d) {
    const auto of = [&](const std::vector<int64_t>& each) { return each[each.size() == 1 ? 0 : d]; };
    const int64_t in = x.size(d + 2), reach = of(dilation) * (kernel.size(d + 2) - 1) + 1, around = 2 * of(padding);
    sizes.push_back(transposed ? (in - 1) * of(stride) - around + reach + of(more)
                               : (in + around - reach) / of(stride) + 1);
  }
  return {made(sizes, x)};
}

Values convolution_backward(Arguments a) {
  const at::Tensor gradient = a[0].toTensor();
  const auto wanted = a[10].toBoolList();
  const auto like = [&](bool is_wanted, const c10::IValue& t) {
    return is_wanted ? made(t.toTensor().sizes(), t.toTensor()) : at::Tensor();
  };
  return {like(wanted[0], a[1]), like(wanted[1], a[2]), wanted[2] ? made({gradient.size(1)}, gradient) : at::Tensor()};
}

// ---- attention: (batch, heads, seq, head_dim), stored as (batch, seq, heads, head_dim)

at::Tensor stored_by_position(const at::Tensor& x) {
  return made({x.size(0), x.size(2), x.size(1), x.size(3)}, x).transpose(1, 2);
}

Values attention(Arguments a) {
  const at::Tensor query = a[0].toTensor();
  const auto exact = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return {stored_by_position(query),
          at::empty({query.size(0), query.size(2), query.size(1)}, query.options().dtype(exact)).transpose(1, 2)};
}

Values attention_backward(Arguments a) {
  return {stored_by_position(a[1].toTensor()), stored_by_position(a[2].toTensor()),
          stored_by_position(a[3].toTensor())};
}

// ---- cost

double elements(const c10::IValue& tensor) { return static_cast<double>(tensor.toTensor().numel()); }

// Returns the FLOPs of x (..., k) times w (..., k, n).
double product_flops(const c10::IValue& x, const c10::IValue& w) {
  return 2 * elements(x) * static_cast<double>(w.toTensor().size(-1));
}

// Returns the FLOPs of `products` products, each of queries x keys x head_dim for every head.
double attention_flops(const c10::IValue& query, const c10::IValue& keys, int products) {
  return 2.0 * products * elements(query) * static_cast<double>(keys.toTensor().size(2));
}

// Returns the FLOPs of a convolution: each element of the result is a sum over the kernel and its input channels.
double convolution_flops(double results, const c10::IValue& weight) {
  return 2 * results * elements(weight) / static_cast<double>(weight.toTensor().size(0));
}

}  // namespace

ShapeFunction shape_function(const std::string& operation) {
  static const auto& shapes = *new std::unordered_map<std::string, ShapeFunction>{
      {"aten::embedding", embedding},
      {"aten::embedding_dense_backward", embedding_backward},
      {"aten::index_add", index_add},
      {"aten::index_add_", in_place},
      {"aten::index_select", index_select},
      {"aten::where.self", where},
      {"aten::native_layer_norm", layer_norm},
      {"aten::native_layer_norm_backward", layer_norm_backward},
      {"aten::convolution", convolution},
      {"aten::convolution_backward", convolution_backward},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", attention},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward},
      {"aten::logical_and", logical},
      {"aten::logical_and_", in_place},
      {"aten::logical_not", logical_not},
      {"aten::logical_not_", in_place},
      {"aten::logical_or", logical},
      {"aten::logical_or_", in_place},
      {"aten::logical_xor", logical},
      {"aten::logical_xor_", in_place},
      {"aten::view", view},
      {"aten::_unsafe_view", view},
      {"aten::as_strided", as_strided},
      {"aten::_reshape_alias", as_strided},
      {"aten::roll", like_first},
      {"aten::flip", like_first},
  };
  const auto found = shapes.find(operation);
  return found == shapes.end() ? nullptr : found->second;
}

double flops_of(const std::string& operation, Arguments a) {
  if (operation == "aten::mm" || operation == "aten::bmm" || operation == "aten::mv" || operation == "aten::dot")
    return a[1].toTensor().dim() == 1 ? 2 * elements(a[0]) : product_flops(a[0], a[1]);
  if (operation == "aten::addmm" || operation == "aten::addmm_" || operation == "aten::baddbmm")
    return product_flops(a[1], a[2]);
  if (operation == "aten::_scaled_dot_product_flash_attention_for_cpu") return attention_flops(a[0], a[1], 2);
  if (operation == "aten::_scaled_dot_product_flash_attention_for_cpu_backward") return attention_flops(a[1], a[2], 5);
  if (operation == "aten::convolution") return convolution_flops(elements(shape_function(operation)(a)[0]), a[1]);
  if (operation == "aten::convolution_backward") return 2 * convolution_flops(elements(a[0]), a[2]);
  return 0;
}

}  // namespace tessera::detail
