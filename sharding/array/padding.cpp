// Finds and writes the padding of local tensors.
#include "sharding/array/padding.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/count_nonzero.h>

#include <cmath>

#include "sharding/array/abstract_tensor.h"
#include "sharding/array/autograd.h"
#include "sharding/placement/element_value.h"

namespace tessera::detail {
namespace {

// Calls visit(slot, dimension, first index of the padding) for each local tensor and dimension with padding.
template <class Visit>
void each_padding(const Type* type, AxisSet slots, uint64_t dims, Visit visit) {
  if (!(type->padded & dims) || type->mesh->abstract) return;
  for (int s = 0; s < type->mesh->slots(slots); ++s) {
    Coordinates coordinates(type->mesh);
    unravel(type->mesh, slots, s, coordinates);
    const IndexRanges block = block_of(type, coordinates);
    for (size_t d = 0; d < block.size(); ++d)
      if (const int64_t end = block[d].second - block[d].first; type->padded & dims & uint64_t{1} << d)
        if (end < type->local[d]) visit(s, static_cast<int64_t>(d), end);
  }
}

at::Tensor behind(const at::Tensor& t, int64_t dim, int64_t end) { return t.narrow(dim, end, t.size(dim) - end); }

at::Scalar value_of(double fill, DType dtype) {
  if (!std::isinf(fill) || is_floating(dtype)) return fill;
  if (dtype == boolean) return fill > 0;
  return fill > 0 ? bounds_of(dtype).most : bounds_of(dtype).least;
}

Tensors copies_with_padding(const Type* type, AxisSet slots, const Tensors& local, double fill, uint64_t dims) {
  const at::AutoGradMode off(false);
  Tensors result = local;
  std::vector<bool> is_copy(local.size());
  each_padding(type, slots, dims, [&](int s, int64_t dim, int64_t end) {
    if (!is_copy[s]) result[s] = local[s].clone();
    is_copy[s] = true;
    behind(result[s], dim, end).fill_(value_of(fill, type->dtype));
  });
  return result;
}

}  // namespace

at::Tensor without_padding(const at::Tensor& block, const IndexRanges& values) {
  at::Tensor t = block;
  for (size_t d = 0; d < values.size(); ++d)
    if (const int64_t size = values[d].second - values[d].first; size < t.size(static_cast<int64_t>(d)))
      t = t.narrow(static_cast<int64_t>(d), 0, size);
  return t;
}

at::Tensor with_padding(const at::Tensor& values, const Shape& local) {
  at::Tensor t = values;
  for (size_t d = 0; d < local.size(); ++d) t = lengthened(t, static_cast<int>(d), local[d]);
  return t;
}

at::Tensor lengthened(const at::Tensor& t, int dim, int64_t size) {
  if (t.size(dim) >= size) return t;
  std::vector<int64_t> sizes = t.sizes().vec();
  sizes[dim] = size;
  if (t.is_meta()) return abstract_tensor(sizes, static_cast<DType>(t.scalar_type()));
  at::Tensor longer = t.new_zeros(sizes);
  longer.narrow(dim, 0, t.size(dim)).copy_(t);
  return longer;
}

void clear_padding(const Type* type, AxisSet slots, const Tensors& local) {
  const at::AutoGradMode off(false);
  each_padding(type, slots, any_dim, [&](int s, int64_t dim, int64_t end) {
    behind(local[s].variable_data(), dim, end).zero_();  // saved tensors keep their version: they need no padding
  });
}

Tensors padded_operand(const char* operation, const ArrayImpl& a, double fill, uint64_t dims) {
  Tensors result = fill == 0 ? a.local : copies_with_padding(a.type, a.slots, a.local, fill, dims);
  const auto cleared = [type = a.type, slots = a.slots](const Tensors& tensors) {
    return copies_with_padding(type, slots, tensors, 0, any_dim);
  };
  record_function(operation, a.local, result, cleared, cleared);
  return result;
}

Tensors expanded_over_padding(const char* operation, const Tensors& local, const Type* result, AxisSet slots) {
  const auto expanded = [result](const Tensors& tensors) {
    Tensors all;
    for (const at::Tensor& t : tensors) all.push_back(t.expand(result->local));
    return all;
  };
  const auto summed = [result, slots, sizes = local[0].sizes().vec()](const Tensors& gradients) {
    Tensors sums;
    for (const at::Tensor& t : copies_with_padding(result, slots, gradients, 0, any_dim))
      sums.push_back(at::sum_to(t, sizes));
    return sums;
  };
  Tensors made = expanded(local);
  record_function(operation, local, made, summed, expanded);
  return made;
}

bool has_clear_padding(const ArrayImpl& a) {
  bool is_clear = true;
  const at::AutoGradMode off(false);
  each_padding(a.type, a.slots, any_dim, [&](int s, int64_t dim, int64_t end) {
    const at::Tensor padding = behind(a.local[s].detach(), dim, end);
    is_clear = is_clear && padding.count_nonzero().item<int64_t>() == 0;
  });
  return is_clear;
}

}  // namespace tessera::detail
