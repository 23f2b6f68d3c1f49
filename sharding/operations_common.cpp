// Checks and factors that several files of operations need.
#include "sharding/operations_common.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "sharding/device_put.h"
#include "sharding/elementwise.h"

namespace tessera::detail {

std::vector<std::string> letters(size_t n) {
  std::vector<std::string> names;
  for (size_t i = 0; i < n; ++i) names.push_back(fmt::format("d{}", i));
  return names;
}

int checked_dim(const char* verb, const Array& x, int dim) {
  const int n = x.ndim();
  if (dim < -n || dim >= n)
    fail(ErrorKind::bad_argument, verb,
         fmt::format("dim {} of {}, expected {} to {}.", dim, x.type_string(), -n, n - 1));
  return dim < 0 ? dim + n : dim;
}

Array as_floating(const Operand& x) {
  const Array& a = x.array();
  return a.is_absent() || is_floating(a.dtype()) ? a : astype(x, float32);
}

void check_integers(const char* verb, const Array& x, const char* what) {
  materialized(x, verb);
  if (is_floating(x.dtype()) || x.dtype() == boolean)
    fail(ErrorKind::dtype_mismatch, verb, fmt::format("{} are {}, expected integers.", what, x.type_string()));
}

Array placed_result(Array result, const ResultOptions& options, const char* verb, std::source_location where) {
  if (!options.out_sharding) return result;
  if (!result.is_committed())
    fail(ErrorKind::device_mismatch, verb,
         fmt::format("out_sharding {} for {}, which lies on no mesh. Place an operand with device_put.",
                     options.out_sharding->to_string(), result.type_string()));
  return with_sharding_constraint(result, *options.out_sharding, where);
}

namespace {

// The least of some integers, once they lie in [lowest, size). What lies outside would be an unreadable error of a
// kernel, or on a sharded dim no error at all.
int64_t checked_least(const char* verb, const at::Tensor& index, int64_t lowest, int64_t size) {
  if (index.numel() == 0 || index.is_meta()) return 0;
  const auto [least, most] = at::aminmax(index);
  const auto first = least.item<int64_t>(), last = most.item<int64_t>();
  if (first < lowest || last >= size)
    fail(ErrorKind::bad_argument, verb,
         fmt::format("indices from {} to {} given, expected {} to {}.", first, last, lowest, size - 1));
  return first;
}

}  // namespace

at::Tensor indices(const char* verb, const at::Tensor& integers, int64_t size) {
  at::Tensor index = integers.to(at::kLong);
  checked_least(verb, index, 0, size);
  return index;
}

at::Tensor wrapped_indices(const char* verb, const at::Tensor& integers, int64_t size) {
  const at::Tensor index = integers.to(at::kLong);
  return checked_least(verb, index, -size, size) < 0 ? at::where(index < 0, index + size, index) : index;
}

}  // namespace tessera::detail
