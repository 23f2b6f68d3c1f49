// Operations on shapes: each has a rule made from its attributes, and an ATen call.
#include "sharding/operations/shape/shapes.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>

#include "sharding/base/fail.h"
#include "sharding/base/thread_state.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/shape/rearrange.h"
#include "sharding/propagation/attributes.h"
#include "sharding/propagation/plan.h"
#include "sharding/propagation/run.h"
#include "sharding/redistribution/device_put.h"
#include "sharding/redistribution/route.h"
#include "sharding/redistribution/step.h"

namespace tessera {

using namespace detail;
using enum Linearity;

// ---- shapes

namespace {

Shape inferred_shape(const Array& x, Shape shape) {
  int64_t known = 1;
  int open = -1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] >= 0)
      known *= shape[d];
    else if (shape[d] == -1 && open < 0)
      open = static_cast<int>(d);
    else
      fail(ErrorKind::invalid_argument, "reshape", "{} to {}: a size may be -1 once.", x.type_string(),
           to_string(shape));
  }
  if (open >= 0 && known > 0 && x.size() % known == 0) shape[open] = x.size() / known, known = x.size();
  if (known != x.size() || (open >= 0 && shape[open] < 0))
    fail(ErrorKind::shape_mismatch, "reshape", "{} has {} elements, the shape {} has another number.", x.type_string(),
         x.size(), to_string(shape));
  return shape;
}

// Returns the rule for an empty array. No correspondence of its dimensions can be determined, so all of them must be
// replicated.
ShardingRule reshape_of_nothing(const Attributes& target, const Shape& from) {
  RuleDims in, out;
  for (size_t d = 0; d < from.size(); ++d) in.push_back(whole(fmt::format("i{}", d), from[d]));
  for (int d = 0; d < target.size(); ++d) out.push_back(whole(fmt::format("o{}", d), target[d]));
  return {{in}, {out}};
}

// Appends the factors as one dimension, or as one dimension each.
void add_factors(RuleDims& dims, const RuleDim& factors, bool as_one) {
  if (as_one)
    dims.push_back(factors);
  else
    dims.insert(dims.end(), factors.factors.begin(), factors.factors.end());
}

// Pairs the shortest runs of dimensions with equal products: (2, 3, 8) -> (6, 8) pairs (2, 3) with (6), and (8) with
// (8). A run with one dimension on either side becomes factors, which may be sharded. Dimensions of other runs, for
// example (4, 6) -> (6, 4), must be replicated.
ShardingRule reshape_rule(const Attributes& target, const OperandTypes& operands) {
  const Shape& from = operands[0]->shape;
  if (operands[0]->elements == 0) return reshape_of_nothing(target, from);
  RuleDims in, out;
  size_t i = 0;
  int j = 0, next = 0;
  const auto name = [&] { return fmt::format("f{}", next++); };
  while (i < from.size() || j < target.size()) {
    if (i < from.size() && from[i] == 1) {
      in.emplace_back(), ++i;
      continue;
    }
    if (j < target.size() && target[j] == 1) {
      out.emplace_back(), ++j;
      continue;
    }
    if (i == from.size() || j == target.size()) break;
    std::vector<int64_t> left{from[i++]}, right{target[j++]};
    int64_t a = left[0], b = right[0];
    while (a != b) {
      if (a < b)
        left.push_back(from[i]), a *= from[i++];
      else
        right.push_back(target[j]), b *= target[j++];
    }
    if (left.size() == 1 || right.size() == 1) {
      RuleDim factors;
      for (int64_t size : left.size() == 1 ? right : left) factors.factors.push_back(factor(name(), size));
      add_factors(in, factors, left.size() == 1);
      add_factors(out, factors, right.size() == 1);
    } else {
      for (int64_t size : left) in.push_back(whole(name(), size));
      for (int64_t size : right) out.push_back(whole(name(), size));
    }
  }
  return {{in}, {out}};
}

const Operation reshape_op{"reshape", reshape_rule, additive, Padded::kept};

ShardingRule transpose_rule(const Attributes& order, const OperandTypes& operands) {
  const RuleDims in = numbered_factors(operands[0]->shape.size());
  RuleDims out;
  for (int i = 0; i < order.size(); ++i) out.push_back(in[order[i]]);
  return {{in}, {out}};
}

const Operation transpose_op{"transpose", transpose_rule, additive, Padded::kept};

// A reshape that keeps some mesh axes of the operand: the result type, and the bytes that its block exchange sends.
struct Crossing {
  const Type* to = nullptr;
  double cost = std::numeric_limits<double>::infinity();
};

Crossing crossing_without(AxisSet axes, const Type* from, const Shape& shape) {
  const Type* to = reshaped_type(without_axes(from, axes), shape);
  const auto exchange = reshape_exchange(from, to);
  return exchange ? Crossing{to, exchange_step(from, to, exchange).cost} : Crossing{};
}

// Returns the result type of a reshape that exchanges blocks; null if reshape_rule gives the same type or costs less.
// If blocks over all mesh axes have no common factors, the axes whose loss costs least are gathered first.
const Type* made_crossing(const Type* from, const Shape& shape) {
  if (from->elements == 0) return nullptr;
  const auto plan = make_plan(
      {.operation = reshape_op, .attributes = Attributes({}, shape), .operands = {from}, .out_dtype = from->dtype});
  const Type* whole = plan->operands[0].plain;
  if (const Crossing all = crossing_without(0, from, shape); all.to)
    return plan->out[0] == all.to && whole == from ? nullptr : all.to;
  Crossing least{nullptr, route(from, from->slots, whole).cost};
  for (AxisSet given_up = from->sharded; given_up; given_up = (given_up - 1) & from->sharded)
    if (const Crossing some = crossing_without(given_up, from, shape); some.cost < least.cost) least = some;
  return least.to;
}

const Type* crossing(const Type* from, const Shape& shape) {
  thread_local BoundedCache<std::map<std::pair<const Type*, Shape>, const Type*>, 1 << 12> crossings;
  if (!from->sharded || from->padded) return nullptr;
  return crossings.get(std::pair(from, shape), [&] { return made_crossing(from, shape); }).second;
}

// Returns the type that the call requests for a sharded array's reshape, if it is reached by moving blocks only; else
// null.
const Type* asked_type(const Type* from, const Shape& shape, const ResultOptions& options) {
  if (!options.out_sharding || !from->sharded || from->elements == 0) return nullptr;
  const NamedSharding sharding(Mesh(from->mesh), *options.out_sharding);
  const Type* to = placed_type(from->dtype, shape, sharding, "reshape");
  return to->unreduced == from->unreduced && to->reduced == from->reduced && !from->varying ? to : nullptr;
}

}  // namespace

Array reshape(Operand x, Shape shape, ResultOptions options) {
  const Array& a = x.array();
  const Type* type = materialized(a, "reshape").type;
  shape = inferred_shape(a, std::move(shape));
  if (shape == a.shape()) return placed_result(a, options, "reshape", x.where());
  check_attributes("reshape", a, "dims of the result", shape.size());
  if (const Type* to = asked_type(type, shape, options))
    if (reshape_exchange(type, to)) return reshape_across_devices(reshape_op, x, to);
  if (const Type* to = crossing(type, shape))
    return placed_result(reshape_across_devices(reshape_op, x, to), options, "reshape", x.where());
  const Array result =
      run_on_parameter({.operation = reshape_op, .attributes = Attributes({}, shape), .where = x.where()}, a,
                       [](Locals t, const BlockContext& block) { return t[0].reshape(block.plan().out[0]->local); });
  return placed_result(result, options, "reshape", x.where());
}

Array ravel(Operand x) { return reshape(x, {-1}); }

Array transpose(Operand x, Dims order) {
  const Array& a = x.array();
  materialized(a, "transpose");
  const int n = a.ndim();
  if (order.empty())
    for (int d = n - 1; d >= 0; --d) order.push_back(d);
  for (int& d : order) d = checked_dim("transpose", a, d);
  Dims sorted = order;
  std::sort(sorted.begin(), sorted.end());
  if (static_cast<int>(order.size()) != n || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    fail(ErrorKind::invalid_argument, "transpose", "order ({}) for {}, expected every dim once.",
         fmt::join(order, ", "), a.type_string());
  const std::vector<int64_t> permutation(order.begin(), order.end());
  check_attributes("transpose", a, "dims", permutation.size());
  return run_on_parameter({.operation = transpose_op, .attributes = Attributes({}, permutation), .where = x.where()}, a,
                          [permutation](Locals t, const BlockContext&) { return t[0].permute(permutation); });
}

Array swapaxes(Operand x, int dim0, int dim1) {
  const Array& a = x.array();
  Dims order = consecutive_dims(a.ndim());
  std::swap(order[checked_dim("swapaxes", a, dim0)], order[checked_dim("swapaxes", a, dim1)]);
  return transpose(x, order);
}

Array moveaxis(Operand x, int from, int to) {
  const Array& a = x.array();
  from = checked_dim("moveaxis", a, from), to = checked_dim("moveaxis", a, to);
  Dims order = consecutive_dims(a.ndim());
  order.erase(order.begin() + from);
  order.insert(order.begin() + to, from);
  return transpose(x, order);
}

// ---- dimensions of size one

namespace {

bool is_among(const Attributes& dims, size_t dim) {
  for (int i = 0; i < dims.size(); ++i)
    if (dims[i] == static_cast<int64_t>(dim)) return true;
  return false;
}

// Returns the rule of squeeze. Attributes: the dimensions.
ShardingRule squeeze_rule(const Attributes& dims, const OperandTypes& operands) {
  RuleDims in = numbered_factors(operands[0]->shape.size()), out;
  for (size_t d = 0; d < in.size(); ++d)
    if (is_among(dims, d))
      in[d] = {};
    else
      out.push_back(in[d]);
  return {{in}, {out}};
}

// Returns the rule of expand_dims. Attributes: the dimensions, counted in the result.
ShardingRule expand_rule(const Attributes& dims, const OperandTypes& operands) {
  const RuleDims in = numbered_factors(operands[0]->shape.size());
  RuleDims out;
  for (size_t next = 0, d = 0; d < in.size() + dims.size(); ++d)
    out.push_back(is_among(dims, d) ? RuleDim() : in[next++]);
  return {{in}, {out}};
}

const Operation squeeze_op{"squeeze", squeeze_rule, additive, Padded::kept};
const Operation expand_dims_op{"expand_dims", expand_rule, additive, Padded::kept};

void check_distinct(const char* verb, const Array& x, const Attributes& dims) {
  for (int i = 0; i < dims.size(); ++i)
    for (int j = 0; j < i; ++j)
      if (dims[i] == dims[j])
        fail(ErrorKind::invalid_argument, verb, "dim {} of {} given twice.", dims[i], x.type_string());
}

}  // namespace

Array squeeze(Operand x, Dims dims) {
  const Array& a = x.array();
  const Shape& shape = materialized(a, "squeeze").type->shape;
  if (dims.empty())
    for (int d = 0; d < a.ndim(); ++d)
      if (shape[d] == 1) dims.push_back(d);
  check_attributes("squeeze", a, "dims of size 1", dims.size());
  Attributes attributes;
  for (int& d : dims) {
    d = checked_dim("squeeze", a, d);
    if (shape[d] != 1) fail(ErrorKind::shape_mismatch, "squeeze", "dim {} of {}, expected size 1.", d, a.type_string());
    attributes.push_back(d);
  }
  check_distinct("squeeze", a, attributes);
  if (dims.empty()) return a;
  const std::vector<int64_t> gone(dims.begin(), dims.end());
  return run_on_parameter({.operation = squeeze_op, .attributes = attributes, .where = x.where()}, a,
                          [gone](Locals t, const BlockContext&) { return t[0].squeeze(gone); });
}

Array expand_dims(Operand x, Dims dims) {
  const Array& a = x.array();
  materialized(a, "expand_dims");
  const int n = a.ndim() + static_cast<int>(dims.size());
  check_attributes("expand_dims", a, "new dims", dims.size());
  Attributes attributes;
  for (int& d : dims) {
    if (d < -n || d >= n)
      fail(ErrorKind::invalid_argument, "expand_dims", "dim {} of a result with {} dims, expected {} to {}.", d, n, -n,
           n - 1);
    if (d < 0) d += n;
    attributes.push_back(d);
  }
  check_distinct("expand_dims", a, attributes);
  if (dims.empty()) return a;
  std::sort(dims.begin(), dims.end());
  return run_on_parameter({.operation = expand_dims_op, .attributes = attributes, .where = x.where()}, a,
                          [dims](Locals t, const BlockContext&) {
                            at::Tensor result = t[0];
                            for (int d : dims) result = result.unsqueeze(d);
                            return result;
                          });
}

// ---- copies

namespace {

// Returns the rule of a broadcast. Attributes: the result's sizes, then for each dimension of the operand its dimension
// in the result.
ShardingRule broadcast_rule(const Attributes& attributes, const OperandTypes& operands) {
  const Shape& shape = operands[0]->shape;
  const int n = attributes.size() - static_cast<int>(shape.size());
  RuleDims in, out;
  for (int d = 0; d < n; ++d) out.push_back(factor(fmt::format("n{}", d), attributes[d]));
  for (size_t d = 0; d < shape.size(); ++d) {
    const int target = static_cast<int>(attributes[n + static_cast<int>(d)]);
    in.push_back(shape[d] == attributes[target] ? out[target] : RuleDim());
  }
  return {{in}, {out}};
}

const Operation broadcast_to_op{"broadcast_to", broadcast_rule, additive, Padded::kept};

// Broadcasts x; its last dimensions, or those that `dims` names, are dimensions of the result.
template <class Local>
Array broadcast(const char* verb, const Operand& x, const Shape& shape, const Dims& dims, Local local) {
  const Array& a = x.array();
  check_attributes(verb, a, "dims of operand and result together", shape.size() + dims.size());
  Attributes attributes({}, shape);
  for (size_t d = 0; d < dims.size(); ++d) {
    if (a.shape()[d] != 1 && a.shape()[d] != shape[dims[d]])
      fail(ErrorKind::shape_mismatch, verb, "{} to {}: dim {} is {}, expected 1 or {}.", a.type_string(),
           to_string(shape), d, a.shape()[d], shape[dims[d]]);
    attributes.push_back(dims[d]);
  }
  return run_on_parameter({.operation = broadcast_to_op, .attributes = attributes, .where = x.where()}, a, local);
}

// Reshards x by the result's spec before it is broadcast, because x is the smaller of the two.
Array brought(const Operand& x, const Shape& shape, const Dims& dims, const ResultOptions& options) {
  const Array& a = x.array();
  if (!options.out_sharding || !a.is_committed()) return a;
  const std::vector<SpecEntry>& wanted = options.out_sharding->entries();
  std::vector<SpecEntry> entries(dims.size());
  for (size_t d = 0; d < dims.size(); ++d)
    if (dims[d] < static_cast<int>(wanted.size()) && a.shape()[d] == shape[dims[d]]) entries[d] = wanted[dims[d]];
  return with_sharding_constraint(a, PartitionSpec(entries).unreduced(options.out_sharding->unreduced_axes()),
                                  x.where());
}

}  // namespace

Array broadcast_to(Operand x, Shape shape, ResultOptions options) {
  const Array& a = x.array();
  materialized(a, "broadcast_to");
  const int extra = static_cast<int>(shape.size()) - a.ndim();
  if (extra < 0)
    fail(ErrorKind::shape_mismatch, "broadcast_to", "{} to {}, which has fewer dims.", a.type_string(),
         to_string(shape));
  const Dims dims = consecutive_dims(a.ndim(), extra);
  const auto local = [](Locals t, const BlockContext& block) { return t[0].expand(block.plan().out[0]->local); };
  const Array in = brought(x, shape, dims, options);
  return placed_result(broadcast("broadcast_to", {in, x.where()}, shape, dims, local), options, "broadcast_to",
                       x.where());
}

Array broadcast_in_dim(Operand x, Shape shape, Dims dims, ResultOptions options) {
  const Array& a = x.array();
  materialized(a, "broadcast_in_dim");
  const bool ascending = std::adjacent_find(dims.begin(), dims.end(), std::greater_equal<>()) == dims.end();
  if (static_cast<int>(dims.size()) != a.ndim() || !ascending ||
      (!dims.empty() && (dims.front() < 0 || dims.back() >= static_cast<int>(shape.size()))))
    fail(ErrorKind::invalid_argument, "broadcast_in_dim",
         "dims ({}) for {} to {}, expected one ascending dim of the result for each.", fmt::join(dims, ", "),
         a.type_string(), to_string(shape));
  const auto local = [dims](Locals t, const BlockContext& block) {
    const Shape& sizes = block.plan().out[0]->local;
    Shape aligned(sizes.size(), 1);
    for (size_t d = 0; d < dims.size(); ++d) aligned[dims[d]] = t[0].size(static_cast<int64_t>(d));
    return t[0].reshape(aligned).expand(sizes);
  };
  const Array in = brought(x, shape, dims, options);
  return placed_result(broadcast("broadcast_in_dim", {in, x.where()}, shape, dims, local), options, "broadcast_in_dim",
                       x.where());
}

}  // namespace tessera
