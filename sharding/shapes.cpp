// Operations on shapes: a rule made from the attributes and an ATen call each.
#include "sharding/shapes.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "sharding/elementwise.h"
#include "sharding/operations_common.h"

namespace tessera {

using namespace detail;

namespace {

constexpr auto nonlinear = Linearity::nonlinear;
constexpr auto additive = Linearity::additive;

const Operation reshape_op{"reshape", "", additive};
const Operation transpose_op{"transpose", "", additive};
const Operation slice_in_dim_op{"slice_in_dim", "", additive};
const Operation concatenate_op{"concatenate", "", additive};

}  // namespace

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
      fail(ErrorKind::bad_argument, "reshape",
           fmt::format("{} to {}: a size may be -1 once.", x.type_string(), to_string(shape)));
  }
  if (open >= 0 && known > 0 && x.size() % known == 0) shape[open] = x.size() / known, known = x.size();
  if (known != x.size() || (open >= 0 && shape[open] < 0))
    fail(ErrorKind::shape_mismatch, "reshape",
         fmt::format("{} has {} elements, the shape {} has another number.", x.type_string(), x.size(),
                     to_string(shape)));
  return shape;
}

// Which dims of an empty array become which is known only where the empty ones stay.
void check_empty(const Array& x, const Shape& shape) {
  const auto [from, to] = std::mismatch(x.shape().begin(), x.shape().end(), shape.begin(), shape.end());
  const auto size = [](auto first, auto last) { return std::accumulate(first, last, int64_t{1}, std::multiplies<>()); };
  const int64_t rest = size(from, x.shape().end());
  if (rest == 0 || rest != size(to, shape.end()))
    fail(ErrorKind::shape_mismatch, "reshape",
         fmt::format("{} to {}: an empty array is reshaped only behind its empty dims.", x.type_string(),
                     to_string(shape)));
}

// Splits two shapes of equal size into the shortest runs of dims with equal products, and writes each run as factors:
// one to one, one split into many, many merged into one; anything else must be whole.
std::string reshape_rule(const Attributes& target, const std::vector<const Type*>& operands) {
  const Shape& from = operands[0]->shape;
  std::string in, out;
  size_t i = 0;
  int j = 0, next = 0;
  const auto fresh = [&](int64_t size) { return fmt::format("f{}={}", next++, size); };
  while (i < from.size() || j < target.size()) {
    if (i < from.size() && from[i] == 1) {
      in += " 1", ++i;
      continue;
    }
    if (j < target.size() && target[j] == 1) {
      out += " 1", ++j;
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
    std::vector<std::string> names;
    if (left.size() == 1 || right.size() == 1) {
      for (int64_t size : left.size() == 1 ? right : left) names.push_back(fresh(size));
      in +=
          left.size() == 1 ? fmt::format(" {{{}}}", fmt::join(names, " ")) : fmt::format(" {}", fmt::join(names, " "));
      out +=
          right.size() == 1 ? fmt::format(" {{{}}}", fmt::join(names, " ")) : fmt::format(" {}", fmt::join(names, " "));
    } else {
      for (int64_t size : left) in += fmt::format(" [{}]", fresh(size));
      for (int64_t size : right) out += fmt::format(" [{}]", fresh(size));
    }
  }
  return in + " -> " + out;
}

std::string transpose_rule(const Attributes& order, const std::vector<const Type*>& operands) {
  const auto names = letters(operands[0]->shape.size());
  std::vector<std::string> out;
  for (int i = 0; i < order.size(); ++i) out.push_back(names[order[i]]);
  return fmt::format("{} -> {}", fmt::join(names, " "), fmt::join(out, " "));
}

}  // namespace

Array reshape(Operand x, Shape shape) {
  const Array& a = x.array();
  materialized(a, "reshape");
  shape = inferred_shape(a, std::move(shape));
  if (shape == a.shape()) return a;
  if (a.size() == 0) check_empty(a, shape);
  Attributes attributes;
  for (int64_t size : shape) attributes.push_back(size);
  return run_on_parameter({.operation = reshape_op, .rule = reshape_rule, .attributes = attributes, .where = x.where()},
                          a, [](Locals t, const Where& where) { return t[0].reshape(where.plan().out[0]->local); });
}

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
    fail(ErrorKind::bad_argument, "transpose",
         fmt::format("order ({}) for {}, expected every dim once.", fmt::join(order, ", "), a.type_string()));
  const std::vector<int64_t> permutation(order.begin(), order.end());
  Attributes attributes;
  for (int64_t d : permutation) attributes.push_back(d);
  return run_on_parameter(
      {.operation = transpose_op, .rule = transpose_rule, .attributes = attributes, .where = x.where()}, a,
      [permutation](Locals t, const Where&) { return t[0].permute(permutation); });
}

Array swapaxes(Operand x, int dim0, int dim1) {
  const Array& a = x.array();
  materialized(a, "swapaxes");
  Dims order(a.ndim());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[checked_dim("swapaxes", a, dim0)], order[checked_dim("swapaxes", a, dim1)]);
  return transpose(x, order);
}

namespace {

// Attributes: the dim, start, stop.
std::string slice_rule(const Attributes& attributes, const std::vector<const Type*>& operands) {
  auto in = letters(operands[0]->shape.size()), out = in;
  in[attributes[0]] = "[whole]";
  out[attributes[0]] = fmt::format("[part={}]", attributes[2] - attributes[1]);
  if (attributes[2] - attributes[1] == 1) out[attributes[0]] = "1";
  return fmt::format("{} -> {}", fmt::join(in, " "), fmt::join(out, " "));
}

}  // namespace

Array slice_in_dim(Operand x, int64_t start, int64_t stop, int dim) {
  const Array& a = x.array();
  materialized(a, "slice_in_dim");
  dim = checked_dim("slice_in_dim", a, dim);
  const int64_t size = a.shape(dim);
  if (start < 0 || stop > size || start >= stop)
    fail(ErrorKind::bad_argument, "slice_in_dim",
         fmt::format("[{}, {}) of dim {} of {}, expected 0 <= start < stop <= {}.", start, stop, dim, a.type_string(),
                     size));
  if (start == 0 && stop == size) return a;
  return run_on_parameter(
      {.operation = slice_in_dim_op, .rule = slice_rule, .attributes = {dim, start, stop}, .where = x.where()}, a,
      [=](Locals t, const Where&) { return t[0].narrow(dim, start, stop - start); });
}

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

}  // namespace

Array concatenate(const std::vector<Array>& arrays, int dim, std::source_location where) {
  if (arrays.empty()) fail(ErrorKind::bad_argument, "concatenate", "no arrays given, expected one or more.");
  DType dtype = materialized(arrays[0], "concatenate").type->dtype;
  for (const Array& x : arrays) dtype = promote(dtype, materialized(x, "concatenate").type->dtype);
  dim = checked_dim("concatenate", arrays[0], dim);
  std::vector<Array> rest;
  for (const Array& x : arrays) rest.push_back(astype({x, where}, dtype));
  while (rest.size() > 1) {
    const size_t n = std::min<size_t>(rest.size(), max_operands);
    Array joined = concatenated({rest.data(), n}, dim, where);
    rest.erase(rest.begin(), rest.begin() + n - 1);
    rest.front() = std::move(joined);
  }
  return rest.front();
}

}  // namespace tessera
