// Checks and rules of reductions.
#include "sharding/operations/reduce/reduction_dims.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "sharding/base/fail.h"
#include "sharding/propagation/attributes.h"

namespace tessera::detail {

Reduction checked_reduction(const char* verb, const Array& x, const Dims& dims, bool keepdims) {
  materialized(x, verb);
  Reduction r{.dims = {}, .keepdims = keepdims, .attributes = {}};
  for (int d : dims) r.dims.push_back(checked_dim(verb, x, d));
  if (dims.empty())
    for (int d = 0; d < x.ndim(); ++d) r.dims.push_back(d);
  std::sort(r.dims.begin(), r.dims.end());
  if (const auto twice = std::adjacent_find(r.dims.begin(), r.dims.end()); twice != r.dims.end())
    fail(ErrorKind::invalid_argument, verb, "dim {} of {} given twice.", *twice, x.type_string());
  check_attributes(verb, x, "dims to reduce", r.dims.size(), /*others=*/1);
  r.attributes = Attributes({keepdims}, r.dims);
  return r;
}

Reduction nonempty_reduction(const char* verb, const Array& x, const Dims& dims, bool keepdims) {
  Reduction r = checked_reduction(verb, x, dims, keepdims);
  if (elements_of(x, r) == 0)
    fail(ErrorKind::invalid_argument, verb,
         "given {} over dims ({}), expected one element or more: the {} of no elements is undefined.", x.type_string(),
         fmt::join(r.dims, ", "), verb);
  return r;
}

int64_t elements_of(const Array& x, const Reduction& r) {
  int64_t n = 1;
  for (int64_t d : r.dims) n *= x.shape()[d];
  return n;
}

namespace {

ShardingRule rule_of(const Attributes& attributes, size_t ndim, FactorKind reduced) {
  RuleDims in = numbered_factors(ndim), out;
  int next = 1;
  for (size_t d = 0; d < ndim; ++d) {
    if (next == attributes.size() || attributes[next] != static_cast<int64_t>(d)) {
      out.push_back(in[d]);
      continue;
    }
    ++next;
    in[d].factors[0].kind = reduced;
    if (attributes[0]) out.emplace_back();
  }
  return {{in}, {out}};
}

}  // namespace

ShardingRule pending_rule(const Attributes& attributes, const OperandTypes& operands) {
  return rule_of(attributes, operands[0]->shape.size(), FactorKind::free);
}

ShardingRule inside_rule(const Attributes& attributes, const OperandTypes& operands) {
  return rule_of(attributes, operands[0]->shape.size(), FactorKind::reduced_inside);
}

at::Tensor with_dims(at::Tensor reduced, const Reduction& r) {
  if (!r.keepdims)
    for (int64_t d : r.dims) reduced = reduced.unsqueeze(d);
  return reduced;
}

}  // namespace tessera::detail
