// Copies and views of small CPU tensors that bypass the dispatcher.
#include "sharding/kernels/small_tensors.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/DimVector.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstring>

#include "sharding/kernels/plain.h"

namespace tessera::detail {

bool is_short(const at::Tensor& t) {
  constexpr int64_t max_elements = 1 << 13;  // a copy of more takes longer than a call of the dispatcher, 2 us
  return !uses_plain(Kernel::small_tensors) && t.is_cpu() && t.numel() <= max_elements && t.is_contiguous() &&
         !t.is_conj() && !t.is_neg();
}

namespace {

// Whether a view or a copy may bypass the dispatcher: autograd does not record it.
bool is_unrecorded(const at::Tensor& t) {
  return !uses_plain(Kernel::small_tensors) && t.is_cpu() && t.layout() == at::kStrided && !t.is_inference() &&
         !(t.requires_grad() && at::GradMode::is_enabled());
}

at::Tensor empty_like(const at::Tensor& t, at::IntArrayRef sizes) {
  return at::Tensor(at::detail::empty_cpu(sizes, t.scalar_type()));
}

// Of each row so many bytes, from one row to the next so many.
void copy_rows(char* to, size_t to_next, const char* from, size_t from_next, size_t bytes, int64_t rows) {
  for (; rows > 0; --rows, to += to_next, from += from_next) std::memcpy(to, from, bytes);
}

int64_t rows_before(const at::Tensor& t, int dim) { return c10::multiply_integers(t.sizes().slice(0, dim)); }

}  // namespace

at::Tensor copy_of(const at::Tensor& t) {
  if (!is_short(t)) return t.detach().clone(at::MemoryFormat::Contiguous);
  at::Tensor copy = empty_like(t, t.sizes());
  if (t.numel()) std::memcpy(copy.mutable_data_ptr(), t.const_data_ptr(), t.nbytes());
  return copy;
}

at::Tensor joined(const Tensors& blocks, int dim) {
  const at::Tensor& first = blocks[0];
  const auto is_like_first = [&](const at::Tensor& t) {
    return is_unrecorded(t) && is_short(t) && t.scalar_type() == first.scalar_type() && t.sizes() == first.sizes();
  };
  if (!std::all_of(blocks.begin(), blocks.end(), is_like_first) || first.numel() == 0)
    return at::cat(at::ArrayRef<at::Tensor>(blocks.data(), blocks.size()), dim);
  at::DimVector sizes(first.sizes());
  sizes[dim] *= static_cast<int64_t>(blocks.size());
  const at::Tensor whole = empty_like(first, sizes);
  const int64_t rows = rows_before(first, dim);
  const size_t row = first.nbytes() / static_cast<size_t>(rows);
  auto* out = static_cast<char*>(whole.mutable_data_ptr());
  for (const at::Tensor& t : blocks) {
    copy_rows(out, row * blocks.size(), static_cast<const char*>(t.const_data_ptr()), row, row, rows);
    out += row;
  }
  return whole;
}

// ---- views

at::Tensor view_of(const at::Tensor& t, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) {
  const at::TensorImpl& whole = *t.unsafeGetTensorImpl();
  auto view = whole.shallow_copy_and_detach(whole.version_counter(), /*allow_tensor_metadata_change=*/true);
  view->set_sizes_and_strides(sizes, strides, offset);
  return at::Tensor(std::move(view));
}

at::Tensor block(const at::Tensor& t, int dim, int i, int n) {
  const int64_t width = t.size(dim) / n;
  if (!is_unrecorded(t)) return t.narrow(dim, i * width, width);
  at::DimVector sizes(t.sizes());
  sizes[dim] = width;
  return view_of(t, sizes, t.strides(), t.storage_offset() + i * width * t.stride(dim));
}

at::Tensor contiguous_block(const at::Tensor& t, int dim, int i, int n) {
  const at::Tensor part = block(t, dim, i, n);
  if (part.is_contiguous() || !is_unrecorded(t) || !is_short(t)) return part.contiguous();
  const at::Tensor copy = empty_like(part, part.sizes());
  const int64_t rows = rows_before(part, dim);
  const size_t row = part.nbytes() / static_cast<size_t>(rows);
  copy_rows(static_cast<char*>(copy.mutable_data_ptr()), row, static_cast<const char*>(part.const_data_ptr()),
            row * static_cast<size_t>(n), row, rows);
  return copy;
}

at::Tensor reshaped(const at::Tensor& t, at::IntArrayRef sizes) {
  if (!is_unrecorded(t) || !t.is_contiguous() || c10::multiply_integers(sizes) != t.numel()) return t.reshape(sizes);
  at::DimVector strides(sizes.size());
  int64_t stride = 1;
  for (size_t dim = sizes.size(); dim-- > 0; stride *= std::max<int64_t>(sizes[dim], 1)) strides[dim] = stride;
  return view_of(t, sizes, strides, t.storage_offset());
}

at::Tensor transposed(const at::Tensor& matrix) {
  if (!is_unrecorded(matrix)) return matrix.t();
  return view_of(matrix, {matrix.size(1), matrix.size(0)}, {matrix.stride(1), matrix.stride(0)},
                 matrix.storage_offset());
}

at::Tensor transposed_copy(const at::Tensor& matrix) {
  if (!is_unrecorded(matrix) || !is_short(matrix) || matrix.scalar_type() != at::kFloat) return matrix.t().contiguous();
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  const at::Tensor copy = empty_like(matrix, {columns, rows});
  const auto* in = matrix.const_data_ptr<float>();
  auto* out = copy.mutable_data_ptr<float>();
  for (int64_t c = 0; c < columns; ++c)
    for (int64_t r = 0; r < rows; ++r) *out++ = in[r * columns + c];
  return copy;
}

}  // namespace tessera::detail
