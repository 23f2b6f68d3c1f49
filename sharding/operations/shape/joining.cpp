// Pads, shifts, copies, joins and splits: ATen calls on unsharded dimensions, index maps along sharded dimensions.
#include "sharding/operations/shape/joining.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/index/slicing.h"
#include "sharding/operations/shape/rearrange.h"
#include "sharding/operations/shape/shapes.h"
#include "sharding/placement/element_value.h"

namespace tessera {

using namespace detail;
using enum Linearity;

namespace {

const Operation pad_op{"pad", change_rule, additive};
const Operation pad_value_op{"pad_value", change_rule, nonlinear};
const Operation flip_op{"flip", change_rule, additive};
const Operation roll_op{"roll", change_rule, additive};
const Operation tile_op{"tile", change_rule, additive};

}  // namespace

// ---- pads, shifts, copies

Array pad(Operand x, std::vector<std::pair<int64_t, int64_t>> widths, double value) {
  const Array& a = x.array();
  Change change{materialized(a, "pad").type->shape};
  if (widths.size() != change.shape.size())
    fail(ErrorKind::invalid_argument, "pad", "{} widths for {}, expected one pair for each dim.", widths.size(),
         a.type_string());
  c10::DimVector reversed;
  for (size_t d = widths.size(); d-- > 0;) {
    const auto [before, after] = widths[d];
    int64_t size = change.shape[d];
    if (before < 0 || after < 0 || __builtin_add_overflow(size, before, &size) ||
        __builtin_add_overflow(size, after, &size))
      fail(ErrorKind::invalid_argument, "pad",
           "widths {} and {} of dim {} of {}, expected 0 or more, and fewer than 2^63 elements in total.", before,
           after, d, a.type_string());
    change.shape[d] = size;
    if (before > 0 || after > 0) change.touch(static_cast<int>(d));
    reversed.push_back(before), reversed.push_back(after);
  }
  if (!change.dims) return a;
  check_size("pad", a.dtype(), change.shape);
  value = fill_value("pad", value, a.dtype());
  return change_places(
      value == 0 ? pad_op : pad_value_op, x, change,
      [reversed, value](const at::Tensor& t) { return at::constant_pad_nd(t, reversed, value); },
      [&](int d) {
        return std::vector<Run>{{widths[d].first, a.shape(d), Run::any, 0, 1}};
      },
      value);
}

Array flip(Operand x, Dims dims) {
  const Array& a = x.array();
  Change change{materialized(a, "flip").type->shape};
  if (dims.empty())
    for (int d = 0; d < a.ndim(); ++d) dims.push_back(d);
  std::vector<int64_t> turned;
  for (int d : dims) {
    turned.push_back(checked_dim("flip", a, d));
    if (change.touches(turned.back()))
      fail(ErrorKind::invalid_argument, "flip", "dim {} of {} given twice.", turned.back(), a.type_string());
    change.touch(static_cast<int>(turned.back()));
  }
  if (!change.dims) return a;
  return change_places(
      flip_op, x, change, [turned](const at::Tensor& t) { return t.flip(turned); },
      [&](int d) {
        return std::vector<Run>{{0, a.shape(d), Run::any, a.shape(d) - 1, -1}};
      });
}

Array roll(Operand x, int64_t shift, int dim) {
  const Array& a = x.array();
  dim = checked_dim("roll", a, dim);
  Change change{a.shape()};
  const int64_t size = a.shape(dim);
  const int64_t right = size ? (shift % size + size) % size : 0;
  if (right == 0) return a;
  change.touch(dim);
  return change_places(
      roll_op, x, change, [=](const at::Tensor& t) { return t.roll(right, dim); },
      [&](int) {
        return std::vector<Run>{{0, right, Run::any, size - right, 1}, {right, size - right, Run::any, 0, 1}};
      });
}

Array roll(Operand x, int64_t shift) {
  const Array& a = x.array();
  materialized(a, "roll");
  if (a.ndim() == 0) return a;
  const Array flat = ravel(x);
  const Array rolled = roll({flat, x.where()}, shift, 0);
  return reshape({rolled, x.where()}, a.shape());
}

Array tile(Operand x, Shape reps) {
  const Array& a = x.array();
  const Shape& shape = materialized(a, "tile").type->shape;
  if (reps.size() > shape.size()) {
    Shape longer = shape;
    longer.insert(longer.begin(), reps.size() - shape.size(), 1);
    const Array reshaped = reshape(x, longer);
    return tile({reshaped, x.where()}, std::move(reps));
  }
  reps.insert(reps.begin(), shape.size() - reps.size(), 1);
  Change change{shape};
  for (size_t d = 0; d < reps.size(); ++d) {
    if (reps[d] < 0) fail(ErrorKind::invalid_argument, "tile", "reps {}, expected 0 or more each.", to_string(reps));
    if (__builtin_mul_overflow(shape[d], reps[d], &change.shape[d]))
      fail(ErrorKind::invalid_argument, "tile", "reps {} of {}, expected fewer than 2^63 elements in total.",
           to_string(reps), a.type_string());
    if (reps[d] != 1) change.touch(static_cast<int>(d));
  }
  if (!change.dims) return a;
  check_size("tile", a.dtype(), change.shape);
  if (const auto none = std::find(reps.begin(), reps.end(), 0); none != reps.end()) {
    const Array nothing = slice_in_dim(x, 0, 0, static_cast<int>(none - reps.begin()));
    *none = 1;
    return tile({nothing, x.where()}, std::move(reps));
  }
  return change_places(
      tile_op, x, change,
      [places = c10::DimVector(reps.begin(), reps.end())](const at::Tensor& t) { return t.repeat(places); },
      [&](int d) {
        std::vector<Run> runs;
        for (int64_t k = 0; k < reps[d]; ++k) runs.push_back({k * shape[d], shape[d], Run::any, 0, 1});
        return runs;
      });
}

namespace {

// Returns the rule of repeat. Attributes: the dimension, the number of copies. Copies of an element are adjacent, so
// they are the minor factor.
ShardingRule repeat_rule(const Attributes& attributes, const OperandTypes& operands) {
  RuleDims in = numbered_factors(operands[0]->shape.size()), out = in;
  out[attributes[0]].factors.push_back(factor("r", attributes[1]));
  return {{in}, {out}};
}

const Operation repeat_op{"repeat", repeat_rule, additive};

}  // namespace

Array repeat(Operand x, int64_t repeats, int dim, ResultOptions options) {
  const Array& a = x.array();
  dim = checked_dim("repeat", a, dim);
  if (repeats < 0) fail(ErrorKind::invalid_argument, "repeat", "repeats {}, expected 0 or more.", repeats);
  if (repeats == 0) return placed_result(slice_in_dim(x, 0, 0, dim), options, "repeat", x.where());
  if (int64_t size; __builtin_mul_overflow(a.shape(dim), repeats, &size))
    fail(ErrorKind::invalid_argument, "repeat", "repeats {} of dim {} of {}, expected fewer than 2^63.", repeats, dim,
         a.type_string());
  const Array result = run({.operation = repeat_op, .attributes = {dim, repeats}, .where = x.where()}, {&a},
                           [=](Locals t, const BlockContext&) { return t[0].repeat_interleave(repeats, dim); });
  return placed_result(result, options, "repeat", x.where());
}

// ---- joins and splits

namespace {

// Returns the rule of concatenate. Attribute: the dimension.
ShardingRule concatenate_rule(const Attributes& attributes, const OperandTypes& operands) {
  RuleDims dims = numbered_factors(operands[0]->shape.size());
  ShardingRule rule;
  int64_t total = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Shape& shape = operands[i]->shape;
    if (shape.size() == dims.size()) total += shape[attributes[0]];
    dims[attributes[0]] = whole(fmt::format("part{}", i));
    rule.in.push_back(dims);
  }
  dims[attributes[0]] = whole("all", total);
  rule.out = {dims};
  return rule;
}

const Operation concatenate_op{"concatenate", concatenate_rule, additive};

Array concatenated(std::span<const Array> arrays, int dim, std::source_location where) {
  const Array* operands[max_operands];
  for (size_t i = 0; i < arrays.size(); ++i) operands[i] = &arrays[i];
  const int n = static_cast<int>(arrays.size());
  Prepared call;
  prepare(call, {.operation = concatenate_op, .attributes = {dim}, .where = where}, operands, n);
  return run(call, concatenate_op.name, [&](Locals t, const BlockContext&) {
    c10::SmallVector<at::Tensor, max_operands> parts;
    for (int i = 0; i < n; ++i) parts.push_back(t[i]);
    return at::cat(at::TensorList(parts.data(), parts.size()), dim);
  });
}

// Joins arrays along a dimension that is sharded in one of them.
Array joined_across_devices(const std::vector<Array>& arrays, int dim, std::source_location where) {
  Shape shape = arrays[0].shape();
  IndexMap map = identity_map(shape);
  map[dim].clear();
  shape[dim] = 0;
  for (size_t i = 0; i < arrays.size(); ++i) {
    map[dim].push_back({shape[dim], arrays[i].shape(dim), static_cast<int>(i), 0, 1});
    shape[dim] += arrays[i].shape(dim);
  }
  return rearrange({concatenate_op, shape, std::move(map), 0, where}, arrays);
}

void check_joinable(const std::vector<Array>& arrays, int dim) {
  for (const Array& x : arrays) {
    bool fits = x.ndim() == arrays[0].ndim();
    for (int d = 0; fits && d < x.ndim(); ++d) fits = d == dim || x.shape(d) == arrays[0].shape(d);
    if (!fits)
      fail(ErrorKind::shape_mismatch, "concatenate", "given {} and {}, expected equal sizes but for dim {}.",
           arrays[0].type_string(), x.type_string(), dim);
  }
}

}  // namespace

Array concatenate(const std::vector<Array>& arrays, int dim, std::source_location where) {
  if (arrays.empty()) fail(ErrorKind::invalid_argument, "concatenate", "no arrays given, expected one or more.");
  DType dtype = materialized(arrays[0], "concatenate").type->dtype;
  for (const Array& x : arrays) dtype = promote(dtype, materialized(x, "concatenate").type->dtype);
  dim = checked_dim("concatenate", arrays[0], dim);
  check_joinable(arrays, dim);
  const auto is_cut = [&](const Array& x) { return x.impl()->type->mesh && !x.impl()->type->dims[dim].empty(); };
  const bool cut = std::any_of(arrays.begin(), arrays.end(), is_cut);
  const bool alike = std::all_of(arrays.begin(), arrays.end(), [&](const Array& x) { return x.dtype() == dtype; });
  if (alike && !cut && arrays.size() > 1 && arrays.size() <= max_operands) return concatenated(arrays, dim, where);
  std::vector<Array> rest;
  for (const Array& x : arrays) rest.push_back(astype({x, where}, dtype));
  if (cut) return joined_across_devices(rest, dim, where);
  while (rest.size() > 1) {
    const size_t n = std::min<size_t>(rest.size(), max_operands);
    Array joined = concatenated({rest.data(), n}, dim, where);
    rest.erase(rest.begin(), rest.begin() + static_cast<int64_t>(n) - 1);
    rest.front() = std::move(joined);
  }
  return rest.front();
}

Array stack(const std::vector<Array>& arrays, int dim, std::source_location where) {
  if (arrays.empty()) fail(ErrorKind::invalid_argument, "stack", "no arrays given, expected one or more.");
  const int n = static_cast<int>(materialized(arrays[0], "stack").type->shape.size()) + 1;
  if (dim < -n || dim >= n)
    fail(ErrorKind::invalid_argument, "stack", "dim {} of a stack of {}, expected {} to {}.", dim,
         arrays[0].type_string(), -n, n - 1);
  std::vector<Array> longer;
  for (const Array& x : arrays) {
    if (materialized(x, "stack").type->shape != arrays[0].shape())
      fail(ErrorKind::shape_mismatch, "stack", "given {} and {}, expected equal shapes.", arrays[0].type_string(),
           x.type_string());
    longer.push_back(expand_dims({x, where}, {dim}));
  }
  return concatenate(longer, dim < 0 ? dim + n : dim, where);
}

namespace {

// Returns the rule of split. Attributes: the dimension, then the sizes of the results along it.
ShardingRule split_rule(const Attributes& attributes, const OperandTypes& operands) {
  RuleDims dims = numbered_factors(operands[0]->shape.size());
  ShardingRule rule;
  dims[attributes[0]] = whole("all");
  rule.in = {dims};
  for (int i = 1; i < attributes.size(); ++i) {
    dims[attributes[0]] = whole(fmt::format("part{}", i), attributes[i]);
    rule.out.push_back(dims);
  }
  return rule;
}

const Operation split_op{"split", split_rule, additive};

std::vector<Array> split_into(const Operand& x, at::IntArrayRef sizes, int dim) {
  const Type& type = *x.array().impl()->type;
  if (static_cast<int>(sizes.size()) < Attributes::most && (!type.mesh || type.dims[dim].empty())) {
    return run_all({.operation = split_op, .attributes = Attributes({dim}, sizes), .where = x.where()}, {&x.array()},
                   [&](Locals t, const BlockContext&) { return t[0].split_with_sizes(sizes, dim); });
  }
  std::vector<Array> parts;
  int64_t start = 0;
  for (int64_t size : sizes) {
    parts.push_back(slice_in_dim(x, start, start + size, dim));
    start += size;
  }
  return parts;
}

}  // namespace

std::vector<Array> split(Operand x, int64_t sections, int dim) {
  const Array& a = x.array();
  dim = checked_dim("split", a, dim);
  if (sections < 1 || a.shape(dim) % sections)
    fail(ErrorKind::shape_mismatch, "split", "dim {} of {} into {} sections, expected a divisor of {}.", dim,
         a.type_string(), sections, a.shape(dim));
  return split_into(x, c10::DimVector(sections, a.shape(dim) / sections), dim);
}

std::vector<Array> split(Operand x, const std::vector<int64_t>& places, int dim) {
  const Array& a = x.array();
  dim = checked_dim("split", a, dim);
  c10::DimVector sizes;
  int64_t start = 0;
  for (size_t i = 0; i <= places.size(); ++i) {
    const int64_t stop = i < places.size() ? places[i] : a.shape(dim);
    if (stop < start || stop > a.shape(dim))
      fail(ErrorKind::invalid_argument, "split",
           "split positions ({}) in dim {} of {}, expected them in order from 0 to {}.", fmt::join(places, ", "), dim,
           a.type_string(), a.shape(dim));
    sizes.push_back(stop - start);
    start = stop;
  }
  return split_into(x, sizes, dim);
}

}  // namespace tessera
