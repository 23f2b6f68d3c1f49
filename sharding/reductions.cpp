// Reductions: a rule made from the attributes and an ATen call each.
#include "sharding/reductions.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "sharding/operations_common.h"

namespace tessera {

using namespace detail;

namespace {

constexpr auto nonlinear = Linearity::nonlinear;
constexpr auto additive = Linearity::additive;

const Operation sum_op{"sum", "", additive};
const Operation mean_op{"mean", "", additive};
const Operation softmax_op{"softmax", "", nonlinear};

}  // namespace

namespace {

// Attributes: keepdims, then the dims.
std::string reduction_rule(const Attributes& attributes, const std::vector<const Type*>& operands) {
  const auto in = letters(operands[0]->shape.size());
  std::vector<std::string> out;
  for (size_t d = 0; d < in.size(); ++d) {
    bool reduced = false;
    for (int i = 1; i < attributes.size(); ++i) reduced |= attributes[i] == static_cast<int64_t>(d);
    if (!reduced)
      out.push_back(in[d]);
    else if (attributes[0])
      out.push_back("1");
  }
  return fmt::format("{} -> {}", fmt::join(in, " "), fmt::join(out, " "));
}

struct Reduction {
  std::vector<int64_t> dims;
  Attributes attributes;
};

Reduction checked_reduction(const char* verb, const Array& x, Dims dims, bool keepdims) {
  materialized(x, verb);
  if (dims.empty())
    for (int d = 0; d < x.ndim(); ++d) dims.push_back(d);
  Reduction r{.dims = {}, .attributes = {keepdims}};
  for (int d : dims) {
    const int64_t dim = checked_dim(verb, x, d);
    if (std::find(r.dims.begin(), r.dims.end(), dim) != r.dims.end())
      fail(ErrorKind::bad_argument, verb, fmt::format("dim {} of {} given twice.", dim, x.type_string()));
    r.dims.push_back(dim);
    r.attributes.push_back(dim);
  }
  return r;
}

}  // namespace

Array sum(Operand x, Dims dims, bool keepdims) {
  const Reduction r = checked_reduction("sum", x.array(), std::move(dims), keepdims);
  if (r.dims.empty()) return x.array();
  const DType dtype = x.array().dtype(), out = is_floating(dtype) || dtype == int64 ? dtype : int32;
  return run(
      {.operation = sum_op, .rule = reduction_rule, .attributes = r.attributes, .out_dtype = out, .where = x.where()},
      {&x.array()},
      [&](Locals t, const Where&) { return at::sum(t[0], r.dims, keepdims, static_cast<at::ScalarType>(out)); });
}

Array mean(Operand x, Dims dims, bool keepdims) {
  const Array a = as_floating(x);
  const Reduction r = checked_reduction("mean", a, std::move(dims), keepdims);
  if (r.dims.empty()) return a;
  double elements = 1;
  for (int64_t d : r.dims) elements *= static_cast<double>(a.shape()[d]);
  return run({.operation = mean_op, .rule = reduction_rule, .attributes = r.attributes, .where = x.where()}, {&a},
             [&](Locals t, const Where& where) {
               if (where.plan().runs == 1) return at::mean(t[0], r.dims, keepdims);
               return at::sum(t[0], r.dims, keepdims).div(elements);
             });
}

namespace {

// Attributes: the dim.
std::string softmax_rule(const Attributes& attributes, const std::vector<const Type*>& operands) {
  auto names = letters(operands[0]->shape.size());
  names[attributes[0]] = "[" + names[attributes[0]] + "]";
  return fmt::format("{0} -> {0}", fmt::join(names, " "));
}

}  // namespace

Array softmax(Operand x, int dim) {
  const Array a = as_floating(x);
  materialized(a, "softmax");
  dim = checked_dim("softmax", a, dim);
  return run({.operation = softmax_op, .rule = softmax_rule, .attributes = {dim}, .where = x.where()}, {&a},
             [dim](Locals t, const Where&) { return at::softmax(t[0], dim); });
}

}  // namespace tessera
