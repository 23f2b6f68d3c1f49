// Lookups by integer arrays, and scatters that add or set.
#include "sharding/operations/index/indexing.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "sharding/base/fail.h"
#include "sharding/kernels/tensors.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/index/sharded_lookup.h"
#include "sharding/operations/shape/shapes.h"
#include "sharding/propagation/run.h"
#include "sharding/redistribution/redistribute.h"

namespace tessera {

using namespace detail;

namespace {

const Operation embedding_op{"embedding", "v d, ... -> ... d", Linearity::linear_in_first, Padded::zeros};

}  // namespace

// ---- ids of one block

namespace {

// The positions of `ids` in a block of `size` elements from `offset` on, and whether each id is in the block. Ids
// outside the block are clamped to its first or last position.
struct Found {
  at::Tensor place, here;

  Found(const at::Tensor& ids, int64_t offset, int64_t size) {
    const at::Tensor local = ids - offset;
    here = (local >= 0).logical_and_(local < size);
    place = local.clamp(0, size - 1);
  }
};

at::Tensor lookup(const at::Tensor& table, const at::Tensor& ids, int64_t offset) {
  const Found found(ids, offset, table.size(0));
  return at::embedding(table, found.place).masked_fill(found.here.logical_not().unsqueeze(-1), no_term);
}

// Returns i0, i1, ...: the dimensions of n-dimensional ids.
RuleDims id_dims(size_t n, FactorKind kind = FactorKind::free) {
  RuleDims dims;
  for (size_t i = 0; i < n; ++i) dims.push_back(RuleFactor{fmt::format("i{}", i), kind});
  return dims;
}

// Returns `dims` with the element at `axis` replaced by `inserted`.
RuleDims replaced(RuleDims dims, size_t axis, const RuleDims& inserted) {
  dims.erase(dims.begin() + axis);
  dims.insert(dims.begin() + axis, inserted.begin(), inserted.end());
  return dims;
}

// Returns the last of `dims`, for an operand of this shape that broadcasts to them.
RuleDims last_dims(const RuleDims& dims, const Shape& shape) {
  RuleDims last(dims.end() - std::min(dims.size(), shape.size()), dims.end());
  for (size_t d = 0; d < last.size(); ++d)
    if (shape[d] == 1) last[d] = {};
  return last;
}

}  // namespace

// ---- lookups

namespace {

// Runs `look_up(ids)`, with gathered ids if that communicates less.
template <class LookUp>
Array read_cheaply(const Read& read, LookUp look_up) {
  const Array gathered = gathered_ids(read);
  return gathered.is_absent() ? look_up(read.ids) : scattered_result(read, look_up(gathered), gathered);
}

}  // namespace

Array embedding(Operand table, const Array& ids, const ResultOptions& options, int64_t vocab) {
  check_integers("embedding", ids, "ids");
  materialized(table.array(), "embedding");
  if (vocab < 0 || (vocab && table.array().ndim() == 2 && vocab > table.array().shape(0)))
    fail(ErrorKind::invalid_argument, "embedding", "vocab {} of the table {}, expected 1 to {}, or 0 for all.", vocab,
         table.array().type_string(), table.array().shape(0));
  const auto look_up = [&](const Array& ids) {
    const Array* operands[] = {&table.array(), &ids};
    Prepared call;
    prepare(call, {.operation = embedding_op, .where = table.where()}, operands, 2);
    if (finds_rows_at_once(call)) return rows_in_blocks(call, vocab);
    return run(call, "embedding", [vocab](Locals t, const BlockContext& block) {
      const at::Tensor rows = narrow_indices("embedding", t[1], vocab ? vocab : block.size("v"));
      return block.is_whole("v") ? at::embedding(t[0], rows) : lookup(t[0], rows, block.offset("v"));
    });
  };
  if (table.array().ndim() != 2) return look_up(ids);  // the rule throws
  const Read read{embedding_op, table, ids, 0, 0, Read::Finds::slice};
  return placed_result(read_cheaply(read, look_up), options, "embedding", table.where());
}

// ---- take

namespace {

ShardingRule take_rule(const Attributes& axis, const OperandTypes& operands) {
  RuleDims in = numbered_factors(operands[0]->shape.size());
  in[axis[0]] = factor("a");
  const RuleDims ids = id_dims(operands[1]->shape.size());
  return {{in, ids}, {replaced(in, axis[0], ids)}};
}

const Operation take_op{"take", take_rule, Linearity::linear_in_first, Padded::zeros};

at::Tensor as_row(const at::Tensor& ids) { return ids.dim() == 1 ? ids : ids.reshape({-1}); }

// Views dimension `axis` of `t` as the dimensions of `ids`.
at::Tensor unflattened(const at::Tensor& t, int64_t axis, const at::Tensor& ids) {
  if (ids.dim() == 1) return t;
  Shape shape = t.sizes().vec();
  shape.erase(shape.begin() + axis);
  shape.insert(shape.begin() + axis, ids.sizes().begin(), ids.sizes().end());
  return t.view(shape);
}

// Returns true if index_add, which is index_select's backward pass, adds in no fixed order, as on accelerators.
// index_put, the backward pass of index, sorts the ids.
bool adds_in_no_order(const at::Tensor& x) { return is_on_accelerator(x) && x.is_floating_point(); }

c10::List<std::optional<at::Tensor>> along(int64_t axis, const at::Tensor& ids) {
  std::vector<std::optional<at::Tensor>> indices(axis);  // the dimensions before `axis`, unindexed
  indices.emplace_back(ids);
  return c10::List<std::optional<at::Tensor>>(indices);
}

at::Tensor picked(const at::Tensor& x, const at::Tensor& ids, int64_t axis) {
  if (axis == 0 && x.dim() == 2 && x.is_floating_point()) return at::embedding(x, ids);
  const at::Tensor row = as_row(ids);
  return unflattened(adds_in_no_order(x) ? at::index(x, along(axis, row)) : x.index_select(axis, row), axis, ids);
}

at::Tensor rows_added(const at::Tensor& x, int64_t axis, const at::Tensor& ids, const at::Tensor& rows) {
  return adds_in_no_order(x) ? at::index_put(x, along(axis, ids), rows, true) : x.index_add(axis, ids, rows);
}

// Returns a mask that is true where the id of a result's element is not in this block.
at::Tensor absent_mask(const at::Tensor& here, int64_t axis, int64_t ndim) {
  Shape shape = here.sizes().vec();
  shape.resize(shape.size() + ndim - 1 - axis, 1);
  return here.logical_not().view(shape);
}

at::Tensor taken(const at::Tensor& x, const at::Tensor& ids, int64_t axis, const BlockContext& block) {
  if (block.is_whole("a")) return picked(x, ids, axis);
  const Found found(ids, block.offset("a"), x.size(axis));
  return picked(x, found.place, axis).masked_fill(absent_mask(found.here, axis, x.dim()), no_term);
}

}  // namespace

Array take(Operand x, const Array& ids, std::optional<int> dim, const ResultOptions& options) {
  check_integers("take", ids, "ids");
  if (!dim) return take({reshape(x, {-1}), x.where()}, ids, 0, options);
  const int64_t d = checked_dim("take", x.array(), *dim);
  const auto look_up = [&](const Array& ids) {
    return run({.operation = take_op, .attributes = {d}, .where = x.where()}, {&x.array(), &ids},
               [d](Locals t, const BlockContext& block) {
                 return taken(t[0], wrapped_indices("take", t[1], block.size("a")), d, block);
               });
  };
  const Read read{take_op, x, ids, d, d, Read::Finds::slice};
  return placed_result(read_cheaply(read, look_up), options, "take", x.where());
}

// ---- take_along_axis

namespace {

ShardingRule take_along_axis_rule(const Attributes& axis, const OperandTypes& operands) {
  const Shape &x = operands[0]->shape, &ids = operands[1]->shape;
  RuleDims out = numbered_factors(x.size()), in = out, index = out;
  for (size_t d = 0; d < x.size(); ++d) {
    if (x[d] == 1 && ids[d] != 1) in[d] = {};
    if (ids[d] == 1 && x[d] != 1) index[d] = {};
  }
  in[axis[0]] = factor("a");
  out[axis[0]] = index[axis[0]] = factor("i");
  return {{in, index}, {out}};
}

const Operation take_along_axis_op{"take_along_axis", take_along_axis_rule, Linearity::linear_in_first, Padded::zeros};

// Broadcasts `t` against `other` in all dimensions but `axis`.
at::Tensor spread_over(const at::Tensor& t, const at::Tensor& other, int64_t axis) {
  const auto spreads = [&](int64_t d) { return d != axis && t.size(d) == 1 && other.size(d) != 1; };
  c10::DimVector shape(t.sizes());
  bool any = false;
  for (int64_t d = 0; d < t.dim(); ++d)
    if (spreads(d)) shape[d] = other.size(d), any = true;
  return any ? t.expand(shape) : t;
}

}  // namespace

Array take_along_axis(Operand x, const Array& ids, int dim) {
  check_integers("take_along_axis", ids, "ids");
  const int64_t d = checked_dim("take_along_axis", x.array(), dim);
  if (ids.ndim() != x.array().ndim())
    fail(ErrorKind::shape_mismatch, "take_along_axis",
         "given {} and ids {}, expected as many dims of both. For ids of another shape use take.",
         x.array().type_string(), ids.type_string());
  const auto look_up = [&](const Array& ids) {
    return run({.operation = take_along_axis_op, .attributes = {d}, .where = x.where()}, {&x.array(), &ids},
               [d](Locals t, const BlockContext& block) {
                 const at::Tensor all = spread_over(wrapped_indices("take_along_axis", t[1], block.size("a")), t[0], d);
                 const at::Tensor from = spread_over(t[0], all, d);
                 if (block.is_whole("a")) return at::gather(from, d, all);
                 const Found found(all, block.offset("a"), t[0].size(d));
                 return at::gather(from, d, found.place).masked_fill(found.here.logical_not(), no_term);
               });
  };
  return read_cheaply({take_along_axis_op, x, ids, d, 0, Read::Finds::element}, look_up);
}

// ---- one_hot

namespace {

ShardingRule one_hot_rule(const Attributes& classes, const OperandTypes&) {
  return {{{any_dims()}}, {{any_dims(), factor("n", classes[0])}}};
}

const Operation one_hot_op{"one_hot", one_hot_rule, Linearity::nonlinear, Padded::kept};

}  // namespace

Array one_hot(Operand ids, int64_t classes, DType dtype) {
  check_integers("one_hot", ids.array(), "ids");
  if (classes < 0) fail(ErrorKind::invalid_argument, "one_hot", "{} classes given, expected 0 or more.", classes);
  return run({.operation = one_hot_op, .attributes = {classes}, .out_dtype = dtype, .where = ids.where()},
             {&ids.array()}, [=](Locals t, const BlockContext&) {
               const at::Tensor columns = at::arange(classes, t[0].options().dtype(at::kLong));
               return at::eq(t[0].unsqueeze(-1), columns).to(scalar_type(dtype));
             });
}

// ---- scatter

namespace {

// Returns the rule of a scatter. Attributes: the dimension, and whether the dimensions of the ids must be replicated. x
// and the updates share one factor for each dimension.
ShardingRule scatter_rule(const Attributes& a, const OperandTypes& operands) {
  RuleDims dims = numbered_factors(operands[0]->shape.size());
  dims[a[0]] = factor("a");
  const RuleDims ids = id_dims(operands[1]->shape.size(), a[1] ? FactorKind::whole : FactorKind::free);
  return {{dims, ids, last_dims(replaced(dims, a[0], ids), operands[2]->shape)}, {dims}};
}

const Operation scatter_add_op{"scatter_add", scatter_rule};
const Operation scatter_set_op{"scatter_set", scatter_rule};

// Returns true if the updates are already one slice of x per id, for ids of one dimension.
bool is_row_each(const at::Tensor& updates, const at::Tensor& x, const at::Tensor& ids, int64_t axis) {
  if (ids.dim() != 1 || updates.dim() != x.dim()) return false;
  for (int64_t d = 0; d < x.dim(); ++d)
    if (updates.size(d) != (d == axis ? ids.size(0) : x.size(d))) return false;
  return true;
}

// Returns the updates as rows along `axis`, one for each id: broadcast, with the dimensions of ids merged.
at::Tensor as_rows(const at::Tensor& updates, const at::Tensor& x, const at::Tensor& ids, int64_t axis) {
  if (is_row_each(updates, x, ids, axis)) return updates;
  c10::DimVector full(x.sizes()), rows = full;
  full.erase(full.begin() + axis);
  full.insert(full.begin() + axis, ids.sizes().begin(), ids.sizes().end());
  rows[axis] = ids.numel();
  const at::Tensor all = updates.sizes() == full ? updates : updates.expand(full);
  return ids.dim() == 1 ? all : all.reshape(rows);
}

// Converts ids along a dimension of this size to indices for LibTorch's kernels.
using ReadIds = at::Tensor (*)(const char* verb, const at::Tensor& ids, int64_t size);

at::Tensor add_rows(const at::Tensor& x, const at::Tensor& all, const at::Tensor& ids, const at::Tensor& updates,
                    int64_t axis, const BlockContext& block) {
  const at::Tensor rows = as_rows(updates, x, ids, axis);
  if (block.is_whole("a")) return rows_added(x, axis, all, rows);
  const Found found(all, block.offset("a"), x.size(axis));
  return rows_added(x, axis, found.place, rows.masked_fill(absent_mask(found.here, axis, x.dim()), no_term));
}

// Returns, for each row of a block, the position in `ids` of the last id that selects the row; -1 if none does.
at::Tensor last_writers(const at::Tensor& ids, int64_t rows, const BlockContext& block) {
  const at::Tensor order = at::arange(ids.numel(), ids.options());
  at::Tensor writers = at::full({rows}, -1, ids.options());
  if (block.is_whole("a")) return writers.scatter_reduce_(0, ids, order, "amax");
  const Found found(ids, block.offset("a"), rows);
  return writers.scatter_reduce_(0, found.place, at::where(found.here, order, -1), "amax");
}

at::Tensor set_rows(const at::Tensor& x, const at::Tensor& ids, const at::Tensor& updates, int64_t axis,
                    const BlockContext& block) {
  if (ids.numel() == 0) return x.clone();
  const at::Tensor all = wrapped_indices("scatter_set", as_row(ids), block.size("a"));
  const at::Tensor writer = last_writers(all, x.size(axis), block);
  c10::DimVector column(x.dim() - axis, 1);
  column[0] = writer.size(0);
  const at::Tensor rows = as_rows(updates, x, ids, axis).index_select(axis, writer.clamp_min(0));
  return at::where((writer >= 0).view(column), rows, x);
}

// Checked operands of a scatter: the dimension, and the updates in x's element type.
struct Scatter {
  int64_t axis;
  Array cast;  // the updates in x's type; absent if they have it
  const Array* updates;

  Scatter(const Scatter&) = delete;
  Scatter(const char* verb, const Operand& x, const Array& ids, const Array& given, int dim) {
    check_integers(verb, ids, "ids");
    materialized(x.array(), verb);
    materialized(given, verb);
    axis = checked_dim(verb, x.array(), dim);
    if (is_floating(given.dtype()) && !is_floating(x.array().dtype()))
      fail(ErrorKind::dtype_mismatch, verb, "updates {} of {}, expected integers. Cast one with astype.",
           given.type_string(), x.array().type_string());
    const DType dtype = x.array().dtype();
    if (given.dtype() != dtype) cast = astype({given, x.where()}, dtype);
    updates = cast.is_absent() ? &given : &cast;
  }
};

// Returns true if the devices hold different ids, so that each has a term of the sum.
bool divides_ids(const Plan& plan) {
  if (!plan.mesh || plan.mesh->devices.size() == 1) return false;
  return std::any_of(plan.factors.begin(), plan.factors.end(),
                     [](const Plan::FactorPlace& f) { return f.name[0] == 'i' && !f.axes.empty(); });
}

// Returns x + part, where part is a partial sum and x's value is added on one device only: a partial sum too.
Array added_once(const Operand& x, const Array& part) {
  const Array& a = x.array();
  const Type* to = on_mesh(a.impl()->type, part.impl()->type->mesh);
  const AxisSet axes = part.impl()->type->unreduced;
  if (!(to->own() & axes))
    return Operand(redistribute(a, sharding_of(with_unreduced(with_reduced(to, to->reduced & ~axes), axes)), x.where()),
                   x.where()) +
           Operand(part, x.where());
  return x + Operand(part, x.where());
}

Array added_rows(const char* verb, ReadIds read, const Operand& x, const Array& ids, const Array& updates, int dim) {
  const Scatter scatter(verb, x, ids, updates, dim);
  const Array* operands[] = {&x.array(), &ids, scatter.updates};
  Prepared call;
  prepare(call, {.operation = scatter_add_op, .attributes = {scatter.axis, false}, .where = x.where()}, operands, 3);
  const bool parts = divides_ids(*call.plan);
  Array result = run(call, scatter_add_op.name, [&](Locals t, const BlockContext& block) {
    const at::Tensor all = read(verb, as_row(t[1]), block.size("a"));
    return add_rows(parts ? at::full_like(t[0], no_term) : t[0], all, t[1], t[2], scatter.axis, block);
  });
  if (parts) return added_once(x, result);
  return result;
}

}  // namespace

Array scatter_add(Operand x, const Array& ids, const Array& updates, int dim) {
  return added_rows("scatter_add", wrapped_indices, x, ids, updates, dim);
}

Array scatter_set(Operand x, const Array& ids, const Array& updates, int dim) {
  const Scatter scatter("scatter_set", x, ids, updates, dim);
  return run({.operation = scatter_set_op, .attributes = {scatter.axis, true}, .where = x.where()},
             {&x.array(), &ids, scatter.updates},
             [&](Locals t, const BlockContext& block) { return set_rows(t[0], t[1], t[2], scatter.axis, block); });
}

Array scatter_set(Operand x, int64_t index, const Array& updates, int dim) {
  return scatter_set(x, array<int64_t>(std::vector<int64_t>{index}, {}), updates, dim);
}

Array bincount(Operand ids, int64_t length) {
  if (length < 0) fail(ErrorKind::invalid_argument, "bincount", "length {} given, expected 0 or more.", length);
  const Array none = zeros({length}, int32);
  return added_rows("bincount", indices, {none, ids.where()}, ids.array(), ones({}, int32), 0);
}

}  // namespace tessera
