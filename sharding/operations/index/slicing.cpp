// Slices: ATen calls on unsharded dimensions, index maps along sharded dimensions.
#include "sharding/operations/index/slicing.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/index/index_entries.h"
#include "sharding/operations/index/indexing.h"
#include "sharding/operations/shape/rearrange.h"
#include "sharding/operations/shape/shapes.h"
#include "sharding/redistribution/device_put.h"

namespace tessera {

using namespace detail;
using enum Linearity;

namespace {

const Operation slice_op{"slice", change_rule, additive};

// ---- slices

at::Tensor part_of(const at::Tensor& t, int64_t dim, const Part& p) {
  if (p.count == 0) return t.slice(dim, 0, 0);
  const int64_t last = p.start + (p.count - 1) * p.step;
  if (p.step > 0) return t.slice(dim, p.start, last + 1, p.step);
  return t.slice(dim, last, p.start + 1, -p.step).flip(dim);
}

Array take_parts(const Operand& x, const Parts& parts) {
  const Shape& shape = x.array().shape();
  Change change{shape};
  for (size_t d = 0; d < parts.size(); ++d) {
    if (parts[d].start == 0 && parts[d].count == shape[d] && parts[d].step == 1) continue;
    change.shape[d] = parts[d].count;
    change.touch(static_cast<int>(d));
  }
  if (!change.dims) return x.array();
  return change_places(
      slice_op, x, change,
      [parts, change](at::Tensor t) {
        for (size_t d = 0; d < parts.size(); ++d)
          if (change.touches(d)) t = part_of(t, static_cast<int64_t>(d), parts[d]);
        return t;
      },
      [&](int d) {
        return std::vector<Run>{{0, parts[d].count, Run::any, parts[d].start, parts[d].step}};
      });
}

void check_count(const char* verb, const Array& x, const Shape& given, const char* what) {
  if (given.size() != x.shape().size())
    fail(ErrorKind::invalid_argument, verb, "{} {} for {}, expected one for each dim.", what, to_string(given),
         x.type_string());
}

}  // namespace

Array slice(Operand x, Shape start, Shape limit, Shape strides) {
  const Array& a = x.array();
  const Shape& shape = materialized(a, "slice").type->shape;
  check_count("slice", a, start, "start"), check_count("slice", a, limit, "limit");
  if (!strides.empty()) check_count("slice", a, strides, "strides");
  Parts parts;
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t stride = strides.empty() ? 1 : strides[d];
    if (start[d] < 0 || start[d] > limit[d] || limit[d] > shape[d] || stride < 1)
      fail(ErrorKind::invalid_argument, "slice",
           "[{}, {}) by {} of dim {} of {}, expected 0 <= start <= limit <= {} and a stride from 1.", start[d],
           limit[d], stride, d, a.type_string(), shape[d]);
    const int64_t step = clamped_step(stride, shape[d]);
    parts.push_back({start[d], (limit[d] - start[d] + step - 1) / step, step});
  }
  return take_parts(x, parts);
}

Array slice_in_dim(Operand x, int64_t start, int64_t stop, int dim) {
  const Array& a = x.array();
  dim = checked_dim("slice_in_dim", a, dim);
  if (start < 0 || stop > a.shape(dim) || start > stop)
    fail(ErrorKind::invalid_argument, "slice_in_dim", "[{}, {}) of dim {} of {}, expected 0 <= start <= stop <= {}.",
         start, stop, dim, a.type_string(), a.shape(dim));
  Parts parts = whole_parts(a.shape());
  parts[dim] = {start, stop - start, 1};
  return take_parts(x, parts);
}

namespace {

// Returns `one`, which has one element along `dim`, with that dimension or without it.
Array with_dim(const Array& one, const Operand& x, int dim, bool keepdims) {
  return keepdims ? one : squeeze({one, x.where()}, {dim});
}

}  // namespace

Array index_in_dim(Operand x, int64_t index, int dim, bool keepdims) {
  const Array& a = x.array();
  dim = checked_dim("index_in_dim", a, dim);
  Parts parts = whole_parts(a.shape());
  parts[dim] = {checked_place("index_in_dim", a, dim, index), 1, 1};
  return with_dim(take_parts(x, parts), x, dim, keepdims);
}

// ---- x.index({...})

Array Array::index(std::initializer_list<Index> entries, std::source_location where) const {
  const ReadIndex read = read_index("index", *this, entries);
  Array result = take_parts({*this, where}, read.parts);
  if (!read.gone.empty()) result = squeeze({result, where}, read.gone);
  if (!read.fresh.empty()) result = expand_dims({result, where}, read.fresh);
  if (!read.ids) return result;
  result = take({result, where}, *read.ids, read.taken);
  for (int d = 0; read.ids_first && d < read.ids->ndim(); ++d) result = moveaxis({result, where}, read.taken + d, d);
  return result;
}

Array Array::operator[](Index entry) const { return index({entry}, entry.where); }

// ---- slices at computed positions

Shape detail::clamped_start(const char* verb, const Array& x, Shape start, const Shape& sizes) {
  check_count(verb, x, start, "start"), check_count(verb, x, sizes, "sizes");
  for (size_t d = 0; d < start.size(); ++d) {
    const int64_t size = x.shape()[d];
    if (sizes[d] < 0 || sizes[d] > size)
      fail(ErrorKind::shape_mismatch, verb, "sizes {} for {}, expected 0 to its own.", to_string(sizes),
           x.type_string());
    if (start[d] < 0) start[d] += size;
    start[d] = std::clamp<int64_t>(start[d], 0, size - sizes[d]);
  }
  return start;
}

Array dynamic_slice(Operand x, Shape start, Shape sizes) {
  const Array& a = x.array();
  materialized(a, "dynamic_slice");
  start = clamped_start("dynamic_slice", a, std::move(start), sizes);
  Parts parts;
  for (size_t d = 0; d < start.size(); ++d) parts.push_back({start[d], sizes[d], 1});
  return take_parts(x, parts);
}

namespace {

// Returns the rule of dynamic_slice. Attributes: the sliced dimensions as bits, the sizes.
ShardingRule dynamic_slice_rule(const Attributes& attributes, const OperandTypes& operands) {
  RuleDims x = numbered_factors(operands[0]->shape.size()), out = x;
  touch_dims(attributes, x, out);
  return {{x, {whole("starts")}}, {out}};
}

const Operation dynamic_slice_op{"dynamic_slice", dynamic_slice_rule, Linearity::linear_in_first};

}  // namespace

Array dynamic_slice_from(Operand x, const Array& start, Shape sizes) {
  const Array& a = x.array();
  materialized(a, "dynamic_slice"), materialized(start, "dynamic_slice");
  clamped_start("dynamic_slice", a, Shape(a.ndim(), 0), sizes);
  Change change{a.shape()};
  for (int d = 0; d < a.ndim(); ++d)
    if (sizes[d] != a.shape(d)) change.touch(d);
  if (!starts_on_devices("dynamic_slice", a, start, change))
    return dynamic_slice(x, gather(astype({start, x.where()}, int64), x.where()).to_host<int64_t>(), std::move(sizes));
  return run({.operation = dynamic_slice_op, .attributes = Attributes({change.dims}, sizes), .where = x.where()},
             {&a, &start}, [&](Locals t, const BlockContext&) {
               const Shape from = local_start(t[1], t[0].sizes(), sizes);
               at::Tensor part = t[0];
               for (int d = 0; d < a.ndim(); ++d)
                 if (change.touches(d)) part = part.narrow(d, from[d], sizes[d]);
               return part;
             });
}

Array dynamic_index_in_dim(Operand x, int64_t index, int dim, bool keepdims) {
  const Array& a = x.array();
  dim = checked_dim("dynamic_index_in_dim", a, dim);
  Shape start(a.ndim(), 0), sizes = a.shape();
  start[dim] = index, sizes[dim] = 1;
  return with_dim(dynamic_slice(x, start, sizes), x, dim, keepdims);
}

Array dynamic_index_in_dim(Operand x, const Array& index, int dim, bool keepdims) {
  const Array& a = x.array();
  dim = checked_dim("dynamic_index_in_dim", a, dim);
  check_integers("dynamic_index_in_dim", index, "index");
  Shape sizes = a.shape();
  sizes[dim] = 1;
  std::vector<int64_t> along(a.ndim(), 0);
  along[dim] = 1;
  const Array start = astype(index, int64) * array<int64_t>(along, {a.ndim()});
  return with_dim(dynamic_slice(x, start, sizes), x, dim, keepdims);
}

}  // namespace tessera
