// Parts and joins: on whole dims an ATen call, along sharded dims a map of places.
#include "sharding/slices.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "sharding/elementwise.h"
#include "sharding/operations_common.h"
#include "sharding/rearrange.h"
#include "sharding/shapes.h"

namespace tessera {

using namespace detail;

namespace {

constexpr auto nonlinear = Linearity::nonlinear;
constexpr auto additive = Linearity::additive;

const Operation slice_op{"slice", "", additive};
const Operation pad_op{"pad", "", additive};
const Operation pad_value_op{"pad_value", "", nonlinear};
const Operation flip_op{"flip", "", additive};
const Operation roll_op{"roll", "", additive};
const Operation tile_op{"tile", "", additive};
const Operation split_op{"split", "", additive};
const Operation concatenate_op{"concatenate", "", additive};
const Operation update_slice_op{"dynamic_update_slice", "", additive};
const Operation overlay_op{"overlay", "", additive};

// ---- one operand, whose elements are found dim by dim

// What a call does to dims: the result's shape and the dims whose elements change places, as bits.
struct Change {
  Shape shape;
  uint32_t dims = 0;

  void touch(int dim) { dims |= 1u << dim; }
  bool touches(size_t dim) const { return dims >> dim & 1; }
};

// Attributes: the dims as bits, the result's sizes.
std::string change_rule(const Attributes& attributes, const std::vector<const Type*>& operands) {
  auto in = letters(operands[0]->shape.size()), out = in;
  for (size_t d = 0; d < in.size(); ++d) {
    if (!(attributes[0] >> d & 1)) continue;
    in[d] = fmt::format("[{}]", in[d]);
    out[d] = fmt::format("[new{}={}]", d, attributes[static_cast<int>(d) + 1]);
  }
  return fmt::format("{} -> {}", fmt::join(in, " "), fmt::join(out, " "));
}

bool moves_between_devices(const Type& type, const Change& change) {
  if (!type.sharded) return false;
  for (size_t d = 0; d < type.dims.size(); ++d)
    if (change.touches(d) && !type.dims[d].empty()) return true;
  return false;
}

// `local` on the local tensors where the touched dims are whole, else the result that `map` describes.
template <class Local, class Map>
Array change_places(const Operation& op, const Operand& x, const Change& change, Local local, Map map,
                    double fill = 0) {
  const Array& a = x.array();
  if (moves_between_devices(*a.impl()->type, change)) {
    IndexMap places = identity_map(a.shape());
    for (size_t d = 0; d < places.size(); ++d)
      if (change.touches(d)) places[d] = map(static_cast<int>(d));
    return rearrange({op, change.shape, std::move(places), fill, x.where()}, {a});
  }
  Attributes attributes{change.dims};
  for (int64_t size : change.shape) attributes.push_back(size);
  return run_on_parameter({.operation = op, .rule = change_rule, .attributes = attributes, .where = x.where()}, a,
                          [local](Locals t, const Where&) { return local(t[0]); });
}

// ---- slices

// `count` elements of a dim.
struct Part {
  int64_t start, count, step;
};

at::Tensor part_of(const at::Tensor& t, int64_t dim, const Part& p) {
  if (p.step == 1) return t.narrow(dim, p.start, p.count);
  const int64_t last = p.start + (p.count - 1) * p.step;
  if (p.count == 0) return t.narrow(dim, 0, 0);
  if (p.step > 0) return t.slice(dim, p.start, last + 1, p.step);
  return t.slice(dim, last, p.start + 1, -p.step).flip(dim);
}

Array take_parts(const Operand& x, const std::vector<Part>& parts) {
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
      [=](at::Tensor t) {
        for (size_t d = 0; d < parts.size(); ++d)
          if (change.touches(d)) t = part_of(t, static_cast<int64_t>(d), parts[d]);
        return t;
      },
      [&](int d) {
        return std::vector<Run>{{0, parts[d].count, Run::any, parts[d].start, parts[d].step}};
      });
}

std::vector<Part> whole_parts(const Shape& shape) {
  std::vector<Part> parts;
  for (int64_t size : shape) parts.push_back({0, size, 1});
  return parts;
}

int64_t checked_place(const char* verb, const Array& x, int dim, int64_t index) {
  const int64_t size = x.shape()[dim];
  if (index < -size || index >= size)
    fail(ErrorKind::bad_argument, verb,
         fmt::format("index {} of dim {} of {}, expected {} to {}.", index, dim, x.type_string(), -size, size - 1));
  return index < 0 ? index + size : index;
}

void check_count(const char* verb, const Array& x, const Shape& given, const char* what) {
  if (given.size() != x.shape().size())
    fail(ErrorKind::bad_argument, verb,
         fmt::format("{} {} for {}, expected one for each dim.", what, to_string(given), x.type_string()));
}

}  // namespace

Array slice(Operand x, Shape start, Shape limit, Shape strides) {
  const Array& a = x.array();
  const Shape& shape = materialized(a, "slice").type->shape;
  if (strides.empty()) strides.assign(shape.size(), 1);
  check_count("slice", a, start, "start"), check_count("slice", a, limit, "limit");
  check_count("slice", a, strides, "strides");
  std::vector<Part> parts;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (start[d] < 0 || start[d] > limit[d] || limit[d] > shape[d] || strides[d] < 1)
      fail(ErrorKind::bad_argument, "slice",
           fmt::format("[{}, {}) by {} of dim {} of {}, expected 0 <= start <= limit <= {} and a stride from 1.",
                       start[d], limit[d], strides[d], d, a.type_string(), shape[d]));
    parts.push_back({start[d], (limit[d] - start[d] + strides[d] - 1) / strides[d], strides[d]});
  }
  return take_parts(x, parts);
}

Array slice_in_dim(Operand x, int64_t start, int64_t stop, int dim) {
  const Array& a = x.array();
  materialized(a, "slice_in_dim");
  dim = checked_dim("slice_in_dim", a, dim);
  if (start < 0 || stop > a.shape(dim) || start > stop)
    fail(ErrorKind::bad_argument, "slice_in_dim",
         fmt::format("[{}, {}) of dim {} of {}, expected 0 <= start <= stop <= {}.", start, stop, dim, a.type_string(),
                     a.shape(dim)));
  std::vector<Part> parts = whole_parts(a.shape());
  parts[dim] = {start, stop - start, 1};
  return take_parts(x, parts);
}

Array index_in_dim(Operand x, int64_t index, int dim, bool keepdims) {
  const Array& a = x.array();
  materialized(a, "index_in_dim");
  dim = checked_dim("index_in_dim", a, dim);
  std::vector<Part> parts = whole_parts(a.shape());
  parts[dim] = {checked_place("index_in_dim", a, dim, index), 1, 1};
  const Array one = take_parts(x, parts);
  return keepdims ? one : squeeze({one, x.where()}, {dim});
}

// ---- x.at(...)

namespace {

// numpy's reading of start:stop:step along a dim of this size.
Part part_of_range(const Range& r, int64_t size) {
  if (r.step == 0) fail(ErrorKind::bad_argument, "at", "a range with step 0, expected another.");
  const int64_t low = r.step > 0 ? 0 : -1, high = r.step > 0 ? size : size - 1;
  const auto place = [&](const std::optional<int64_t>& p, int64_t otherwise) {
    return p ? std::clamp(*p < 0 ? *p + size : *p, low, high) : otherwise;
  };
  const int64_t start = place(r.start, r.step > 0 ? low : high), stop = place(r.stop, r.step > 0 ? high : low);
  const int64_t distance = r.step > 0 ? stop - start : start - stop, step = std::abs(r.step);
  return {start, std::max<int64_t>(0, (distance + step - 1) / step), r.step};
}

// What the entries say of each dim of x, and of the result.
struct ReadIndex {
  std::vector<Part> parts;
  Dims gone, fresh;  // dims of the slice that integers take away; dims of the result that are new
};

ReadIndex read_index(const Array& x, const std::vector<Index>& entries) {
  using Kind = Index::Kind;
  int named = 0, ellipses = 0;
  for (const Index& e : entries) {
    named += e.kind == Kind::integer || e.kind == Kind::range;
    ellipses += e.kind == Kind::ellipsis;
  }
  if (named > x.ndim() || ellipses > 1)
    fail(ErrorKind::bad_argument, "at",
         fmt::format("{} entries and {} ellipses for {}, expected at most {} and 1.", named, ellipses, x.type_string(),
                     x.ndim()));
  ReadIndex read{whole_parts(x.shape()), {}, {}};
  int dim = 0, out = 0;
  for (const Index& e : entries) {
    if (e.kind == Kind::newaxis) {
      read.fresh.push_back(out++);
    } else if (e.kind == Kind::ellipsis) {
      dim += x.ndim() - named, out += x.ndim() - named;
    } else if (e.kind == Kind::range) {
      read.parts[dim] = part_of_range(e.range, x.shape()[dim]);
      ++dim, ++out;
    } else {
      read.parts[dim] = {checked_place("at", x, dim, e.integer), 1, 1};
      read.gone.push_back(dim++);
    }
  }
  return read;
}

}  // namespace

Array Array::at(Index first, Index second, Index third, Index fourth, Index fifth, Index sixth) const {
  std::vector<Index> entries;
  for (const Index& e : {first, second, third, fourth, fifth, sixth})
    if (e.kind != Index::Kind::nothing) entries.push_back(e);
  materialized(*this, "at");
  const ReadIndex read = read_index(*this, entries);
  Array result = take_parts({*this, first.where}, read.parts);
  if (!read.gone.empty()) result = squeeze({result, first.where}, read.gone);
  return read.fresh.empty() ? result : expand_dims({result, first.where}, read.fresh);
}

// ---- slices at computed places

namespace {

Shape clamped(const char* verb, const Array& x, Shape start, const Shape& sizes) {
  check_count(verb, x, start, "start"), check_count(verb, x, sizes, "sizes");
  for (size_t d = 0; d < start.size(); ++d) {
    const int64_t size = x.shape()[d];
    if (sizes[d] < 0 || sizes[d] > size)
      fail(ErrorKind::shape_mismatch, verb,
           fmt::format("sizes {} for {}, expected at most its own.", to_string(sizes), x.type_string()));
    if (start[d] < 0) start[d] += size;
    start[d] = std::clamp<int64_t>(start[d], 0, size - sizes[d]);
  }
  return start;
}

}  // namespace

Array dynamic_slice(Operand x, Shape start, Shape sizes) {
  const Array& a = x.array();
  materialized(a, "dynamic_slice");
  start = clamped("dynamic_slice", a, std::move(start), sizes);
  std::vector<Part> parts;
  for (size_t d = 0; d < start.size(); ++d) parts.push_back({start[d], sizes[d], 1});
  return take_parts(x, parts);
}

Array dynamic_slice(Operand x, const Array& start, Shape sizes) {
  check_integers("dynamic_slice", start, "starts");
  return dynamic_slice(x, astype(start, int64).to_host<int64_t>(), std::move(sizes));
}

Array dynamic_index_in_dim(Operand x, int64_t index, int dim, bool keepdims) {
  const Array& a = x.array();
  materialized(a, "dynamic_index_in_dim");
  dim = checked_dim("dynamic_index_in_dim", a, dim);
  Shape start(a.ndim(), 0), sizes = a.shape();
  start[dim] = index, sizes[dim] = 1;
  const Array one = dynamic_slice(x, start, sizes);
  return keepdims ? one : squeeze({one, x.where()}, {dim});
}

namespace {

// Attributes: the dims that the update does not fill, as bits.
std::string update_rule(const Attributes& attributes, const std::vector<const Type*>& operands) {
  auto x = letters(operands[0]->shape.size()), update = x;
  for (size_t d = 0; d < x.size(); ++d) {
    if (!(attributes[0] >> d & 1)) continue;
    x[d] = fmt::format("[{}]", x[d]);
    update[d] = fmt::format("[part{}]", d);
  }
  return fmt::format("{0}, {1} -> {0}", fmt::join(x, " "), fmt::join(update, " "));
}

std::string overlay_rule(const Attributes&, const std::vector<const Type*>& operands) {
  const auto dims = letters(operands[0]->shape.size());
  return fmt::format("{0}, {0} -> {0}", fmt::join(dims, " "));
}

// x outside the box, y inside it.
Array overlay(const Operand& x, const Array& y, const Shape& start, const Shape& sizes) {
  return run({.operation = overlay_op, .rule = overlay_rule, .where = x.where()}, {&x.array(), &y},
             [&](Locals t, const Where& where) {
               at::Tensor inside = at::zeros(t[0].sizes(), at::kBool), box = inside;
               for (size_t d = 0; d < start.size(); ++d) {
                 const int64_t offset = where.plan().factors[d].offset[where.slot()];
                 const int64_t low = std::clamp<int64_t>(start[d] - offset, 0, box.size(d));
                 const int64_t high = std::clamp<int64_t>(start[d] + sizes[d] - offset, low, box.size(d));
                 box = box.narrow(d, low, high - low);
               }
               box.fill_(true);
               return at::where(inside, t[1], t[0]);
             });
}

}  // namespace

Array dynamic_update_slice(Operand x, const Array& update, Shape start) {
  const Array& a = x.array();
  materialized(a, "dynamic_update_slice");
  if (materialized(update, "dynamic_update_slice").type->dtype != a.dtype())
    fail(ErrorKind::dtype_mismatch, "dynamic_update_slice",
         fmt::format("{} into {}, expected one element type.", update.type_string(), a.type_string()));
  start = clamped("dynamic_update_slice", a, std::move(start), update.shape());
  Change change{a.shape()};
  std::vector<std::pair<int64_t, int64_t>> around;
  for (int d = 0; d < a.ndim(); ++d) {
    if (update.shape(d) != a.shape(d)) change.touch(d);
    around.push_back({start[d], a.shape(d) - start[d] - update.shape(d)});
  }
  if (moves_between_devices(*a.impl()->type, change))
    return overlay(x, pad({update, x.where()}, around), start, update.shape());
  return run({.operation = update_slice_op, .rule = update_rule, .attributes = {change.dims}, .where = x.where()},
             {&a, &update}, [&](Locals t, const Where&) {
               at::Tensor result = t[0].clone(), box = result;
               for (int d = 0; d < a.ndim(); ++d)
                 if (change.touches(d)) box = box.narrow(d, start[d], update.shape(d));
               box.copy_(t[1]);
               return result;
             });
}

// ---- pads, shifts, copies

Array pad(Operand x, std::vector<std::pair<int64_t, int64_t>> widths, double value) {
  const Array& a = x.array();
  Change change{materialized(a, "pad").type->shape};
  if (widths.size() != change.shape.size())
    fail(ErrorKind::bad_argument, "pad",
         fmt::format("{} widths for {}, expected one pair for each dim.", widths.size(), a.type_string()));
  std::vector<int64_t> reversed;
  for (size_t d = widths.size(); d-- > 0;) {
    const auto [before, after] = widths[d];
    if (before < 0 || after < 0)
      fail(ErrorKind::bad_argument, "pad",
           fmt::format("widths {} and {} of dim {} of {}, expected 0 or more.", before, after, d, a.type_string()));
    change.shape[d] += before + after;
    if (before + after > 0) change.touch(static_cast<int>(d));
    reversed.insert(reversed.end(), {before, after});
  }
  if (!change.dims) return a;
  return change_places(
      value == 0 ? pad_op : pad_value_op, x, change,
      [=](const at::Tensor& t) { return at::constant_pad_nd(t, reversed, value); },
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
  Change change{materialized(a, "roll").type->shape};
  dim = checked_dim("roll", a, dim);
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
  materialized(a, "tile");
  Shape shape = a.shape();
  if (reps.size() > shape.size()) shape.insert(shape.begin(), reps.size() - shape.size(), 1);
  if (shape.size() > a.shape().size()) {
    const Array longer = reshape(x, shape);
    return tile({longer, x.where()}, std::move(reps));
  }
  reps.insert(reps.begin(), shape.size() - reps.size(), 1);
  Change change{shape};
  for (size_t d = 0; d < reps.size(); ++d) {
    if (reps[d] < 1)
      fail(ErrorKind::bad_argument, "tile", fmt::format("reps {}, expected 1 or more each.", to_string(reps)));
    change.shape[d] *= reps[d];
    if (reps[d] > 1) change.touch(static_cast<int>(d));
  }
  if (!change.dims) return a;
  return change_places(
      tile_op, x, change, [reps](const at::Tensor& t) { return t.repeat(reps); },
      [&](int d) {
        std::vector<Run> runs;
        for (int64_t k = 0; k < reps[d]; ++k) runs.push_back({k * shape[d], shape[d], Run::any, 0, 1});
        return runs;
      });
}

// ---- joins and splits

namespace {

// Attributes: the dim.
std::string concatenate_rule(const Attributes& attributes, const std::vector<const Type*>& operands) {
  std::vector<std::string> in, names = letters(operands[0]->shape.size());
  int64_t total = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Shape& shape = operands[i]->shape;
    if (shape.size() == names.size()) total += shape[attributes[0]];
    names[attributes[0]] = fmt::format("[part{}]", i);
    in.push_back(fmt::format("{}", fmt::join(names, " ")));
  }
  names[attributes[0]] = fmt::format("[all={}]", total);
  return fmt::format("{} -> {}", fmt::join(in, ", "), fmt::join(names, " "));
}

Array concatenated(std::span<const Array> arrays, int dim, std::source_location where) {
  const Array* operands[max_operands];
  for (size_t i = 0; i < arrays.size(); ++i) operands[i] = &arrays[i];
  const int n = static_cast<int>(arrays.size());
  Prepared call;
  prepare(call, {.operation = concatenate_op, .rule = concatenate_rule, .attributes = {dim}, .where = where}, operands,
          n);
  return run(call, concatenate_op.name, [&](Locals t, const Where&) {
    std::vector<at::Tensor> parts;
    for (int i = 0; i < n; ++i) parts.push_back(t[i]);
    return at::cat(parts, dim);
  });
}

// Along a dim that is sharded in one of them.
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
      fail(ErrorKind::shape_mismatch, "concatenate",
           fmt::format("given {} and {}, expected equal sizes but for dim {}.", arrays[0].type_string(),
                       x.type_string(), dim));
  }
}

}  // namespace

Array concatenate(const std::vector<Array>& arrays, int dim, std::source_location where) {
  if (arrays.empty()) fail(ErrorKind::bad_argument, "concatenate", "no arrays given, expected one or more.");
  DType dtype = materialized(arrays[0], "concatenate").type->dtype;
  for (const Array& x : arrays) dtype = promote(dtype, materialized(x, "concatenate").type->dtype);
  dim = checked_dim("concatenate", arrays[0], dim);
  check_joinable(arrays, dim);
  std::vector<Array> rest;
  for (const Array& x : arrays) rest.push_back(astype({x, where}, dtype));
  const auto is_cut = [&](const Array& x) { return x.impl()->type->mesh && !x.impl()->type->dims[dim].empty(); };
  if (std::any_of(rest.begin(), rest.end(), is_cut)) return joined_across_devices(rest, dim, where);
  while (rest.size() > 1) {
    const size_t n = std::min<size_t>(rest.size(), max_operands);
    Array joined = concatenated({rest.data(), n}, dim, where);
    rest.erase(rest.begin(), rest.begin() + static_cast<int64_t>(n) - 1);
    rest.front() = std::move(joined);
  }
  return rest.front();
}

Array stack(const std::vector<Array>& arrays, int dim, std::source_location where) {
  if (arrays.empty()) fail(ErrorKind::bad_argument, "stack", "no arrays given, expected one or more.");
  std::vector<Array> longer;
  for (const Array& x : arrays) longer.push_back(expand_dims({x, where}, {dim}));
  return concatenate(longer, dim < 0 ? dim + longer[0].ndim() : dim, where);
}

namespace {

// Attributes: the dim, then the parts' sizes.
std::string split_rule(const Attributes& attributes, const std::vector<const Type*>& operands) {
  auto in = letters(operands[0]->shape.size()), out = in;
  in[attributes[0]] = "[all]";
  std::vector<std::string> parts;
  for (int i = 1; i < attributes.size(); ++i) {
    out[attributes[0]] = fmt::format("[part{}={}]", i, attributes[i]);
    parts.push_back(fmt::format("{}", fmt::join(out, " ")));
  }
  return fmt::format("{} -> {}", fmt::join(in, " "), fmt::join(parts, ", "));
}

std::vector<Array> split_into(const Operand& x, const std::vector<int64_t>& sizes, int dim) {
  const Type& type = *x.array().impl()->type;
  if (static_cast<int>(sizes.size()) < Attributes::most && (!type.mesh || type.dims[dim].empty())) {
    Attributes attributes{dim};
    for (int64_t size : sizes) attributes.push_back(size);
    return run_all({.operation = split_op, .rule = split_rule, .attributes = attributes, .where = x.where()},
                   {&x.array()}, [&](Locals t, const Where&) { return t[0].split_with_sizes(sizes, dim); });
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
  materialized(a, "split");
  dim = checked_dim("split", a, dim);
  if (sections < 1 || a.shape(dim) % sections)
    fail(ErrorKind::shape_mismatch, "split",
         fmt::format("dim {} of {} into {} sections, expected a divisor of {}.", dim, a.type_string(), sections,
                     a.shape(dim)));
  return split_into(x, std::vector<int64_t>(sections, a.shape(dim) / sections), dim);
}

std::vector<Array> split(Operand x, const std::vector<int64_t>& places, int dim) {
  const Array& a = x.array();
  materialized(a, "split");
  dim = checked_dim("split", a, dim);
  std::vector<int64_t> sizes;
  int64_t start = 0;
  for (size_t i = 0; i <= places.size(); ++i) {
    const int64_t stop = i < places.size() ? places[i] : a.shape(dim);
    if (stop < start || stop > a.shape(dim))
      fail(ErrorKind::bad_argument, "split",
           fmt::format("places ({}) in dim {} of {}, expected them in order from 0 to {}.", fmt::join(places, ", "),
                       dim, a.type_string(), a.shape(dim)));
    sizes.push_back(stop - start);
    start = stop;
  }
  return split_into(x, sizes, dim);
}

}  // namespace tessera
