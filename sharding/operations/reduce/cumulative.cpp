// Cumulative sums and products: each block separately, then combined with the totals of previous blocks.
#include <ATen/ATen.h>

#include "sharding/operations/argument_checks.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/operations/shape/shapes.h"
#include "sharding/propagation/run.h"

namespace tessera {

using namespace detail;

namespace {

// The three operations of a cumulative sum or product:
//   within: the cumulative values inside each block
//   total: the total of each block, which is its last element
//   after: combines a block with the totals of the blocks before it
struct Scan {
  const Operation &within, &total, &after;
  at::Tensor (*running)(const at::Tensor&, int64_t dim);
  at::Tensor (*join)(const at::Tensor& block, const at::Tensor& totals_before, int64_t dim);
};

// Returns the factors of n dimensions. Dimension `dim` has the factors `given`.
RuleDims with_dim(size_t n, int64_t dim, RuleDim given) {
  RuleDims dims = numbered_factors(n);
  dims[dim] = std::move(given);
  return dims;
}

// Returns the rule of the operation within blocks. Attributes of all three operations: the dimension, and its number of
// blocks.
ShardingRule within_rule(const Attributes& a, const OperandTypes& operands) {
  const RuleDims dims = with_dim(operands[0]->shape.size(), a[0], a[1] == 1 ? whole("d") : factor("d"));
  return {{dims}, {dims}};
}

ShardingRule total_rule(const Attributes& a, const OperandTypes& operands) {
  const size_t n = operands[0]->shape.size();
  return {{with_dim(n, a[0], {factor("block", a[1]), factor("d")})}, {with_dim(n, a[0], factor("block"))}};
}

ShardingRule after_rule(const Attributes& a, const OperandTypes& operands) {
  const size_t n = operands[0]->shape.size();
  const RuleDims dims = with_dim(n, a[0], factor("d"));
  return {{dims, with_dim(n, a[0], whole("block"))}, {dims}};
}

const Operation cumsum_op{"cumsum", within_rule, Linearity::additive};
const Operation cumsum_total_op{"cumsum_total", total_rule, Linearity::additive};
const Operation cumsum_after_op{"cumsum_after", after_rule, Linearity::additive};
const Operation cumprod_op{"cumprod", within_rule};
const Operation cumprod_total_op{"cumprod_total", total_rule};
const Operation cumprod_after_op{"cumprod_after", after_rule};

int64_t blocks_of(const Array& x, int dim) {
  const Type* type = x.impl()->type;
  return type->mesh && !type->is_padded(dim) ? type->mesh->count(type->dims[dim].axis_set()) : 1;
}

Array scan(const Scan& s, const Operand& x, int dim) {
  const Array& a = x.array();
  const int64_t blocks = blocks_of(a, dim);
  const Attributes attributes{dim, blocks};
  const Array within = run({.operation = s.within, .attributes = attributes, .where = x.where()}, {&a},
                           [&](Locals t, const BlockContext&) { return s.running(t[0], dim); });
  if (blocks == 1 || a.shape(dim) == 0) return within;
  const Array totals = run({.operation = s.total, .attributes = attributes, .where = x.where()}, {&within},
                           [&](Locals t, const BlockContext&) { return t[0].narrow(dim, t[0].size(dim) - 1, 1); });
  return run({.operation = s.after, .attributes = attributes, .where = x.where()}, {&within, &totals},
             [&](Locals t, const BlockContext& block) {
               const int64_t before = block.offset("d") / t[0].size(dim);
               return s.join(t[0], t[1].narrow(dim, 0, before), dim);  // every process needs a gradient
             });
}

// Converts to int32 what JAX widens: booleans, and for products also uint8.
Array checked(const char* verb, const Operand& x, bool widen_bytes) {
  const DType dtype = materialized(x.array(), verb).type->dtype;
  return dtype == boolean || (widen_bytes && dtype == uint8) ? astype(x, int32) : x.array();
}

}  // namespace

Array cumsum(Operand x, std::optional<int> dim) {
  if (!dim) return cumsum({ravel(x), x.where()}, 0);
  const Array a = checked("cumsum", x, false);
  const Scan sums{cumsum_op, cumsum_total_op, cumsum_after_op,
                  [](const at::Tensor& t, int64_t d) { return at::cumsum(t, d, t.scalar_type()); },
                  [](const at::Tensor& t, const at::Tensor& before, int64_t d) {
                    return t + at::sum(before, d, /*keepdim=*/true, t.scalar_type());
                  }};
  return scan(sums, {a, x.where()}, checked_dim("cumsum", a, *dim));
}

Array cumprod(Operand x, std::optional<int> dim) {
  if (!dim) return cumprod({ravel(x), x.where()}, 0);
  const Array a = checked("cumprod", x, true);
  const Scan products{cumprod_op, cumprod_total_op, cumprod_after_op,
                      [](const at::Tensor& t, int64_t d) { return at::cumprod(t, d, t.scalar_type()); },
                      [](const at::Tensor& t, const at::Tensor& before, int64_t d) {
                        return t * at::prod(before, d, /*keepdim=*/true, t.scalar_type());
                      }};
  return scan(products, {a, x.where()}, checked_dim("cumprod", a, *dim));
}

}  // namespace tessera
