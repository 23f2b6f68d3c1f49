// Checks of arguments that several files of operations share.
#include "sharding/operations/argument_checks.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sharding/array/array_impl.h"
#include "sharding/array/late_checks.h"
#include "sharding/base/fail.h"
#include "sharding/kernels/tensors.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::detail {

Dims consecutive_dims(int n, int first) {
  Dims dims;
  for (int i = 0; i < n; ++i) dims.push_back(first + i);
  return dims;
}

int checked_dim(const char* verb, const Array& x, int dim) {
  const int n = static_cast<int>(materialized(x, verb).type->shape.size());
  if (dim < -n || dim >= n)
    fail(ErrorKind::invalid_argument, verb,
         n ? fmt::format("dim {} of {}, expected {} to {}.", dim, x.type_string(), -n, n - 1)
           : fmt::format("dim {} of {}, which has no dims.", dim, x.type_string()));
  return dim < 0 ? dim + n : dim;
}

Array as_floating(const Operand& x) {
  const Array& a = x.array();
  return a.is_absent() || is_floating(a.dtype()) ? a : astype(x, float32);
}

void check_integers(const char* verb, const Array& x, const char* what) {
  materialized(x, verb);
  if (is_floating(x.dtype()) || x.dtype() == boolean)
    fail(ErrorKind::dtype_mismatch, verb, "{} are {}, expected integers.", what, x.type_string());
}

void check_floating(const char* verb, const Array& x, const char* what) {
  materialized(x, verb);
  if (!is_floating(x.dtype()))
    fail(ErrorKind::dtype_mismatch, verb, "{} is {}, expected a floating type. Convert with astype.", what,
         x.type_string());
}

Array placed_result(Array result, const ResultOptions& options, const char* verb, std::source_location where) {
  if (!options.out_sharding) return result;
  if (!result.is_committed())
    fail(ErrorKind::device_mismatch, verb,
         "out_sharding {} for {}, which is not on a mesh. Place an operand with device_put.",
         options.out_sharding->to_string(), result.type_string());
  return with_sharding_constraint(result, *options.out_sharding, where);
}

namespace {

using LeastAndMost = std::pair<int64_t, int64_t>;

template <class T>
LeastAndMost bounds_of(const T* values, int64_t n) {
  T least = values[0], most = values[0];
  for (int64_t i = 1; i < n; ++i) least = std::min(least, values[i]), most = std::max(most, values[i]);
  return {least, most};
}

// Returns the least and the largest of some integers. Few integers are read in a loop, because a kernel of LibTorch
// would take longer than the lookup itself.
LeastAndMost bounds_of(const at::Tensor& integers) {
  constexpr int64_t few = 1 << 14;
  const bool readable = integers.is_cpu() && integers.is_contiguous() && integers.numel() <= few;
  if (readable && integers.scalar_type() == at::kInt)
    return bounds_of(static_cast<const int32_t*>(integers.const_data_ptr()), integers.numel());
  if (readable && integers.scalar_type() == at::kLong)
    return bounds_of(static_cast<const int64_t*>(integers.const_data_ptr()), integers.numel());
  const auto [least, most] = at::aminmax(integers);
  return {least.item<int64_t>(), most.item<int64_t>()};
}

// Returns the least of some integers. Throws if one is outside [lowest, size), because a kernel's error would be
// unreadable, and on a sharded dimension there would be no error.
int64_t checked_least(const char* verb, const at::Tensor& index, int64_t lowest, int64_t size) {
  if (index.numel() == 0 || index.is_meta()) return 0;
  const auto [first, last] = bounds_of(index);
  if (first < lowest || last >= size)
    fail(ErrorKind::invalid_argument, verb,
         size ? fmt::format("indices from {} to {} given, expected {} to {}.", first, last, lowest, size - 1)
              : fmt::format("indices from {} to {} given for a dim without elements.", first, last));
  return first;
}

at::Tensor as_long(const at::Tensor& integers) {
  return integers.scalar_type() == at::kLong ? integers : integers.to(at::kLong);
}

}  // namespace

at::Tensor narrow_indices(const char* verb, const at::Tensor& integers, int64_t size) {
  const bool readable = integers.scalar_type() == at::kInt || integers.scalar_type() == at::kLong;
  if (is_on_accelerator(integers))
    return checked_later(verb, integers, 0, size, readable ? integers.scalar_type() : at::kLong);
  const at::Tensor index = readable ? integers : as_long(integers);
  checked_least(verb, index, 0, size);
  return index;
}

at::Tensor indices(const char* verb, const at::Tensor& integers, int64_t size) {
  if (is_on_accelerator(integers)) return checked_later(verb, integers, 0, size, at::kLong);
  const at::Tensor index = as_long(integers);
  checked_least(verb, index, 0, size);
  return index;
}

at::Tensor wrapped_indices(const char* verb, const at::Tensor& integers, int64_t size) {
  if (is_on_accelerator(integers)) return at::remainder(checked_later(verb, integers, -size, size, at::kLong), size);
  const at::Tensor index = as_long(integers);
  return checked_least(verb, index, -size, size) < 0 ? at::where(index < 0, index + size, index) : index;
}

}  // namespace tessera::detail
