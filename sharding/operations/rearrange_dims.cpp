// Which dims of an operation have to be whole, and which are sharded.
#include "sharding/operations/rearrange_dims.h"

#include <fmt/format.h>

namespace tessera::detail {

ShardingRule change_rule(const Attributes& attributes, const OperandTypes& operands) {
  RuleDims in = numbered_factors(operands[0]->shape.size()), out = in;
  for (size_t d = 0; d < in.size(); ++d) {
    if (!(attributes[0] >> d & 1)) continue;
    in[d] = whole(fmt::format("d{}", d));
    out[d] = whole(fmt::format("new{}", d), attributes[static_cast<int>(d) + 1]);
  }
  return {{in}, {out}};
}

bool moves_between_devices(const Type& type, const Change& change) {
  if (!type.sharded) return false;
  for (size_t d = 0; d < type.dims.size(); ++d)
    if (change.touches(d) && !type.dims[d].empty()) return true;
  return false;
}

}  // namespace tessera::detail
