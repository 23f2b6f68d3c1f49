// Determines which dimensions of an operation must not be sharded, and whether they are.
#include <fmt/format.h>

#include <optional>

#include "sharding/array/host_sync.h"
#include "sharding/base/fail.h"
#include "sharding/kernels/tensors.h"
#include "sharding/operations/shape/rearrange.h"

namespace tessera::detail {

void touch_dims(const Attributes& attributes, RuleDims& x, RuleDims& part) {
  for (size_t d = 0; d < x.size(); ++d) {
    if (!(attributes[0] >> d & 1)) continue;
    x[d] = whole(fmt::format("d{}", d));
    part[d] = whole(fmt::format("part{}", d), attributes.size() > 1 ? attributes[static_cast<int>(d) + 1] : 0);
  }
}

ShardingRule change_rule(const Attributes& attributes, const OperandTypes& operands) {
  RuleDims in = numbered_factors(operands[0]->shape.size()), out = in;
  touch_dims(attributes, in, out);
  return {{in}, {out}};
}

bool moves_between_devices(const Type& type, const Change& change) {
  if (!type.sharded) return false;
  for (size_t d = 0; d < type.dims.size(); ++d)
    if (change.touches(d) && !type.dims[d].empty()) return true;
  return false;
}

bool starts_on_devices(const char* verb, const Array& x, const Array& start, const Change& change) {
  check_integers(verb, start, "starts");
  if (start.shape() != Shape{x.ndim()})
    fail(ErrorKind::shape_mismatch, verb, "starts {} for {}, expected one integer for each dim.", start.type_string(),
         x.type_string());
  return start.impl()->type->varying || !moves_between_devices(*x.impl()->type, change);
}

Shape local_start(const at::Tensor& start, at::IntArrayRef shape, at::IntArrayRef sizes) {
  Shape result(sizes.size(), 0);
  if (start.is_meta()) return result;
  std::optional<AllowHostSync> asked;
  if (!start.is_cpu()) asked.emplace();
  const at::Tensor values = start.to(at::kCPU, at::kLong).contiguous();
  for (size_t d = 0; d < result.size(); ++d) {
    const int64_t given = const_elements<int64_t>(values)[d];
    result[d] = std::clamp<int64_t>(given < 0 ? given + shape[d] : given, 0, std::max<int64_t>(0, shape[d] - sizes[d]));
  }
  return result;
}

}  // namespace tessera::detail
