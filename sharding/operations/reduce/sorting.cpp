// Sorting: LibTorch's stable sort on dimensions that are not sharded; top_k from the best elements of each block.
#include <ATen/ATen.h>

#include <array>

#include "sharding/array/autograd.h"
#include "sharding/base/fail.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/propagation/run.h"

namespace tessera {

using namespace detail;

namespace {

// Returns a rule that requires one dimension, the attribute, to be replicated.
ShardingRule whole_rule(const Attributes& attributes, const OperandTypes& operands) {
  RuleDims dims = numbered_factors(operands[0]->shape.size());
  dims[attributes[0]] = whole("d");
  return {{dims}, {dims}};
}

const Operation sort_op{"sort", whole_rule};
const Operation argsort_op{"argsort", whole_rule};

}  // namespace

Array sort(Operand x, int dim, bool descending) {
  const int64_t d = checked_dim("sort", x.array(), dim);
  return run(
      {.operation = sort_op, .attributes = {d}, .where = x.where()}, {&x.array()},
      [=](Locals t, const BlockContext&) { return std::get<0>(at::sort(t[0], /*stable=*/true, d, descending)); });
}

Array argsort(Operand x, int dim, bool descending) {
  const int64_t d = checked_dim("argsort", x.array(), dim);
  return run({.operation = argsort_op, .attributes = {d}, .out_dtype = int32, .where = x.where()}, {&x.array()},
             [=](Locals t, const BlockContext&) {
               const at::Tensor x = is_recorded(t[0]) ? t[0].detach() : t[0];
               return at::argsort(x, /*stable=*/true, d, descending).to(at::kInt);
             });
}

namespace {

// Returns the rule of top_k. Attributes: k, the number of blocks.
ShardingRule top_k_rule(const Attributes& a, const OperandTypes&) {
  const RuleDims best{any_dims(), whole("k", a[0])};
  return {{{any_dims(), whole("d")}}, {best, best}};
}

ShardingRule blocks_rule(const Attributes& a, const OperandTypes&) {
  const RuleDims best{any_dims(), {factor("block"), whole("k", a[0])}};
  return {{{any_dims(), {factor("block", a[1]), whole("d")}}}, {best, best}};
}

ShardingRule candidates_rule(const Attributes& a, const OperandTypes&) {
  const RuleDims candidates{any_dims(), whole("c")}, best{any_dims(), whole("k", a[0])};
  return {{candidates, candidates}, {best, best}};
}

const Operation top_k_op{"top_k", top_k_rule};
const Operation top_k_of_blocks_op{"top_k_of_blocks", blocks_rule};
const Operation top_k_of_candidates_op{"top_k_of_candidates", candidates_rule};

// Uses a stable sort, because a selection does not return the first of equal elements.
std::pair<at::Tensor, at::Tensor> best(const at::Tensor& t, int64_t k) {
  const auto [values, indices] = at::sort(t, /*stable=*/true, -1, /*descending=*/true);
  return {values.slice(-1, 0, k), indices.slice(-1, 0, k)};
}

TopK named(std::vector<Array> results) { return {std::move(results[0]), std::move(results[1])}; }

TopK top_k_of_whole(const Operand& x, int64_t k) {
  return named(run_all({.operation = top_k_op, .attributes = {k}, .rest_dtype = int32, .where = x.where()},
                       {&x.array()}, [k](Locals t, const BlockContext&) {
                         const auto [values, indices] = best(t[0], k);
                         return std::array{values, indices.to(at::kInt)};
                       }));
}

// Returns the best elements of each block with their global indices, in the order of the blocks. So the first of equal
// candidates is the first of all.
TopK top_k_of_blocks(const Operand& x, int64_t k, int64_t blocks) {
  return named(
      run_all({.operation = top_k_of_blocks_op, .attributes = {k, blocks}, .rest_dtype = int32, .where = x.where()},
              {&x.array()}, [k](Locals t, const BlockContext& block) {
                const auto [values, indices] = best(t[0], k);
                const int64_t offset = block.offset("block") * t[0].size(-1);
                return std::array{values, (indices + offset).to(at::kInt)};
              }));
}

TopK top_k_of_candidates(const TopK& candidates, int64_t k, const std::source_location& where) {
  return named(run_all({.operation = top_k_of_candidates_op, .attributes = {k}, .rest_dtype = int32, .where = where},
                       {&candidates.values, &candidates.indices}, [k](Locals t, const BlockContext&) {
                         const auto [values, places] = best(t[0], k);
                         return std::array{values, t[1].gather(-1, places)};
                       }));
}

}  // namespace

TopK top_k(Operand x, int k) {
  const Array& a = x.array();
  const Type* type = materialized(a, "top_k").type;
  const int64_t size = a.shape()[checked_dim("top_k", a, -1)];
  if (k < 0 || k > size)
    fail(ErrorKind::invalid_argument, "top_k", "k = {} given for {}, expected 0 to {}.", k, a.type_string(), size);
  const bool is_cut = type->mesh && !type->is_padded(type->dims.size() - 1);
  const int64_t blocks = is_cut ? type->mesh->count(type->dims.back().axis_set()) : 1;
  const int64_t candidate = item_size(type->dtype) + item_size(int32);
  if (blocks == 1 || k == 0 || k * blocks > size || blocks * k * candidate >= size * item_size(type->dtype))
    return top_k_of_whole(x, k);
  return top_k_of_candidates(top_k_of_blocks(x, k, blocks), k, x.where());
}

}  // namespace tessera
