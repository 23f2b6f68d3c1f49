// Elementwise operations, shapes and reductions: a rule and an ATen call each.
#include "sharding/operations.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sharding/recipe.h"
#include "sharding/run.h"

namespace tessera {

using namespace detail;

namespace {

at::ScalarType scalar_type(DType dtype) { return static_cast<at::ScalarType>(dtype); }

constexpr auto nonlinear = Linearity::nonlinear;
constexpr auto multilinear = Linearity::multilinear;
constexpr auto additive = Linearity::additive;

// ---- elementwise

template <class Fn>
Array unary(const Operation& op, const Operand& x, Fn fn) {
  return run({.operation = op, .where = x.where()}, {&x.array()}, [fn](Locals t, const Where&) { return fn(t[0]); });
}

// A view, cast or scaling.
template <class Fn>
Array scaling(const Operation& op, const Operand& x, Fn fn) {
  return run_on_parameter({.operation = op, .where = x.where()}, x.array(), [fn](Locals t, const Where&) { return fn(t[0]); });
}

template <class Fn>
Array binary(const Operation& op, const Operand& a, const Operand& b, Fn fn) {
  const auto call = [&](const Array& x, const Array& y) {
    return run({.operation = op, .where = a.where()}, {&x, &y}, [fn](Locals t, const Where&) { return fn(t[0], t[1]); });
  };
  const Array &x = a.array(), &y = b.array();
  if (x.is_absent() || y.is_absent() || x.impl()->type->dtype == y.impl()->type->dtype) return call(x, y);
  const DType common = promote(x.dtype(), y.dtype());
  return call(astype({x, a.where()}, common), astype({y, b.where()}, common));
}

// Integers and booleans become float32 where the result cannot be an integer.
Array floating(const Operand& x) {
  const Array& a = x.array();
  return a.is_absent() || is_floating(a.dtype()) ? a : astype(x, float32);
}

}  // namespace

Array operator+(Operand a, Operand b) {
  static const Operation op{"add", "*", additive};
  return binary(op, a, b, [](const at::Tensor& x, const at::Tensor& y) { return at::add(x, y); });
}

Array operator-(Operand a, Operand b) {
  static const Operation op{"sub", "*", additive};
  return binary(op, a, b, [](const at::Tensor& x, const at::Tensor& y) { return at::sub(x, y); });
}

Array operator*(Operand a, Operand b) {
  static const Operation op{"mul", "*", multilinear};
  return binary(op, a, b, [](const at::Tensor& x, const at::Tensor& y) { return at::mul(x, y); });
}

Array operator/(Operand a, Operand b) {
  static const Operation op{"div", "*", nonlinear};
  const Array x = floating(a), y = floating(b);
  return binary(op, {x, a.where()}, {y, b.where()}, [](const at::Tensor& n, const at::Tensor& d) { return at::div(n, d); });
}

namespace {

// An integer array with a scalar that is no integer becomes float32, as with JAX's weak types.
Array for_scalar(const Operand& x, double scalar) {
  const Array& a = x.array();
  return a.is_absent() || is_floating(a.dtype()) || scalar == std::trunc(scalar) ? a : astype(x, float32);
}

// The scalar as the tensor's own kind of number: integers stay exact.
at::Scalar scalar_of(double value, const at::Tensor& like) {
  return at::isFloatingType(like.scalar_type()) ? at::Scalar(value) : at::Scalar(static_cast<int64_t>(value));
}

Array plus(const Operand& a, double b) {
  static const Operation op{"add", "*", nonlinear};
  const Array x = for_scalar(a, b);
  return unary(op, {x, a.where()}, [b](const at::Tensor& t) { return at::add(t, scalar_of(b, t)).to(t.scalar_type()); });
}

Array times(const Operand& a, double b) {
  static const Operation op{"scale", "*", additive};
  if (a.array().is_recipe() && is_floating(a.array().dtype())) return scaled(a.array(), b);
  if (!a.array().is_absent() && is_floating(a.array().dtype()))
    return scaling(op, a, [b](const at::Tensor& t) { return at::mul(t, b); });
  const Array x = for_scalar(a, b);
  return unary(op, {x, a.where()}, [b](const at::Tensor& t) { return at::mul(t, scalar_of(b, t)).to(t.scalar_type()); });
}

}  // namespace

Array operator+(Operand a, double b) { return plus(a, b); }
Array operator+(double a, Operand b) { return plus(b, a); }
Array operator-(Operand a, double b) { return plus(a, -b); }
Array operator-(double a, Operand b) { return plus({times(b, -1), b.where()}, a); }
Array operator*(Operand a, double b) { return times(a, b); }
Array operator*(double a, Operand b) { return times(b, a); }
Array operator-(Operand a) { return times(a, -1); }

Array operator/(Operand a, double b) {
  static const Operation op{"scale", "*", additive};
  const Array x = floating(a);
  return scaling(op, {x, a.where()}, [b](const at::Tensor& t) { return at::div(t, b); });
}

Array exp(Operand x) {
  static const Operation op{"exp", "*", nonlinear};
  return unary(op, {floating(x), x.where()}, [](const at::Tensor& t) { return at::exp(t); });
}

Array log(Operand x) {
  static const Operation op{"log", "*", nonlinear};
  return unary(op, {floating(x), x.where()}, [](const at::Tensor& t) { return at::log(t); });
}

Array sqrt(Operand x) {
  static const Operation op{"sqrt", "*", nonlinear};
  return unary(op, {floating(x), x.where()}, [](const at::Tensor& t) { return at::sqrt(t); });
}

Array rsqrt(Operand x) {
  static const Operation op{"rsqrt", "*", nonlinear};
  return unary(op, {floating(x), x.where()}, [](const at::Tensor& t) { return at::rsqrt(t); });
}

Array square(Operand x) {
  static const Operation op{"square", "*", nonlinear};
  return unary(op, x, [](const at::Tensor& t) { return at::mul(t, t); });
}

Array tanh(Operand x) {
  static const Operation op{"tanh", "*", nonlinear};
  return unary(op, {floating(x), x.where()}, [](const at::Tensor& t) { return at::tanh(t); });
}

Array sigmoid(Operand x) {
  static const Operation op{"sigmoid", "*", nonlinear};
  return unary(op, {floating(x), x.where()}, [](const at::Tensor& t) { return at::sigmoid(t); });
}

Array relu(Operand x) {
  static const Operation op{"relu", "*", nonlinear};
  return unary(op, x, [](const at::Tensor& t) { return at::relu(t); });
}

Array silu(Operand x) {
  static const Operation op{"silu", "*", nonlinear};
  return unary(op, {floating(x), x.where()}, [](const at::Tensor& t) { return at::silu(t); });
}

Array gelu(Operand x, bool approximate) {
  static const Operation op{"gelu", "*", nonlinear};
  return unary(op, {floating(x), x.where()},
               [approximate](const at::Tensor& t) { return at::gelu(t, approximate ? "tanh" : "none"); });
}

Array astype(Operand x, DType dtype) {
  static const Operation linear{"astype", "*", additive}, rounding{"astype", "*", nonlinear};
  const Array& a = x.array();
  if (!a.is_absent() && a.dtype() == dtype) return a;
  if (a.is_recipe()) return recast(a, dtype);
  return run_on_parameter({.operation = is_floating(dtype) ? linear : rounding, .out_dtype = dtype, .where = x.where()}, a,
                          [dtype](Locals t, const Where&) { return t[0].to(scalar_type(dtype)); });
}

Array stop_gradient(Operand x) {
  ArrayImpl& a = materialized(x.array(), "stop_gradient");
  Tensors local;
  for (const at::Tensor& t : a.local) local.push_back(t.detach());
  ArrayPtr plain = make_array(a.type, a.slots, std::move(local));
  plain->weight = a.weight;
  plain->layout = a.layout;
  return Array(std::move(plain));
}

// ---- shapes

namespace {

std::vector<std::string> letters(size_t n) {
  std::vector<std::string> names;
  for (size_t i = 0; i < n; ++i) names.push_back(fmt::format("d{}", i));
  return names;
}

int checked_dim(const char* verb, const Array& x, int dim) {
  const int n = x.ndim();
  if (dim < -n || dim >= n)
    fail(ErrorKind::bad_argument, verb, fmt::format("dim {} of {}, expected {} to {}.", dim, x.type_string(), -n, n - 1));
  return dim < 0 ? dim + n : dim;
}

Shape inferred_shape(const Array& x, Shape shape) {
  int64_t known = 1;
  int open = -1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] >= 0) known *= shape[d];
    else if (shape[d] == -1 && open < 0) open = static_cast<int>(d);
    else fail(ErrorKind::bad_argument, "reshape", fmt::format("{} to {}: a size may be -1 once.", x.type_string(), to_string(shape)));
  }
  if (open >= 0 && known > 0 && x.size() % known == 0) shape[open] = x.size() / known, known = x.size();
  if (known != x.size() || (open >= 0 && shape[open] < 0))
    fail(ErrorKind::shape_mismatch, "reshape",
         fmt::format("{} has {} elements, the shape {} has another number.", x.type_string(), x.size(), to_string(shape)));
  return shape;
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
    if (i < from.size() && from[i] == 1) { in += " 1", ++i; continue; }
    if (j < target.size() && target[j] == 1) { out += " 1", ++j; continue; }
    if (i == from.size() || j == target.size()) break;
    std::vector<int64_t> left{from[i++]}, right{target[j++]};
    int64_t a = left[0], b = right[0];
    while (a != b) {
      if (a < b) left.push_back(from[i]), a *= from[i++];
      else right.push_back(target[j]), b *= target[j++];
    }
    std::vector<std::string> names;
    if (left.size() == 1 || right.size() == 1) {
      for (int64_t size : left.size() == 1 ? right : left) names.push_back(fresh(size));
      in += left.size() == 1 ? fmt::format(" {{{}}}", fmt::join(names, " ")) : fmt::format(" {}", fmt::join(names, " "));
      out += right.size() == 1 ? fmt::format(" {{{}}}", fmt::join(names, " ")) : fmt::format(" {}", fmt::join(names, " "));
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
  static const Operation op{"reshape", "", additive};
  const Array& a = x.array();
  materialized(a, "reshape");
  shape = inferred_shape(a, std::move(shape));
  if (shape == a.shape()) return a;
  if (a.size() == 0)
    fail(ErrorKind::shape_mismatch, "reshape", fmt::format("{} is empty; arrays without elements are not reshaped.", a.type_string()));
  Attributes attributes;
  for (int64_t size : shape) attributes.push_back(size);
  return run_on_parameter({.operation = op, .rule = reshape_rule, .attributes = attributes, .where = x.where()}, a,
                          [](Locals t, const Where& where) { return t[0].reshape(where.plan().out[0]->local); });
}

Array transpose(Operand x, Dims order) {
  static const Operation op{"transpose", "", additive};
  const Array& a = x.array();
  materialized(a, "transpose");
  const int n = a.ndim();
  if (order.empty())
    for (int d = n - 1; d >= 0; --d) order.push_back(d);
  for (int& d : order) d = checked_dim("transpose", a, d);
  Dims sorted = order;
  std::sort(sorted.begin(), sorted.end());
  if (static_cast<int>(order.size()) != n || std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    fail(ErrorKind::bad_argument, "transpose", fmt::format("order ({}) for {}, expected every dim once.", fmt::join(order, ", "), a.type_string()));
  const std::vector<int64_t> permutation(order.begin(), order.end());
  Attributes attributes;
  for (int64_t d : permutation) attributes.push_back(d);
  return run_on_parameter({.operation = op, .rule = transpose_rule, .attributes = attributes, .where = x.where()}, a,
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
  static const Operation op{"slice_in_dim", "", additive};
  const Array& a = x.array();
  materialized(a, "slice_in_dim");
  dim = checked_dim("slice_in_dim", a, dim);
  const int64_t size = a.shape(dim);
  if (start < 0 || stop > size || start >= stop)
    fail(ErrorKind::bad_argument, "slice_in_dim",
         fmt::format("[{}, {}) of dim {} of {}, expected 0 <= start < stop <= {}.", start, stop, dim, a.type_string(), size));
  if (start == 0 && stop == size) return a;
  return run_on_parameter({.operation = op, .rule = slice_rule, .attributes = {dim, start, stop}, .where = x.where()}, a,
                          [=](Locals t, const Where&) { return t[0].narrow(dim, start, stop - start); });
}

// ---- reductions

namespace {

// Attributes: keepdims, then the dims.
std::string reduction_rule(const Attributes& attributes, const std::vector<const Type*>& operands) {
  const auto in = letters(operands[0]->shape.size());
  std::vector<std::string> out;
  for (size_t d = 0; d < in.size(); ++d) {
    bool reduced = false;
    for (int i = 1; i < attributes.size(); ++i) reduced |= attributes[i] == static_cast<int64_t>(d);
    if (!reduced) out.push_back(in[d]);
    else if (attributes[0]) out.push_back("1");
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
  static const Operation op{"sum", "", additive};
  const Reduction r = checked_reduction("sum", x.array(), std::move(dims), keepdims);
  if (r.dims.empty()) return x.array();
  const DType dtype = x.array().dtype(), out = is_floating(dtype) || dtype == int64 ? dtype : int32;
  return run({.operation = op, .rule = reduction_rule, .attributes = r.attributes, .out_dtype = out, .where = x.where()},
             {&x.array()}, [&](Locals t, const Where&) { return at::sum(t[0], r.dims, keepdims, scalar_type(out)); });
}

Array mean(Operand x, Dims dims, bool keepdims) {
  static const Operation op{"mean", "", additive};
  const Array a = floating(x);
  const Reduction r = checked_reduction("mean", a, std::move(dims), keepdims);
  if (r.dims.empty()) return a;
  double elements = 1;
  for (int64_t d : r.dims) elements *= static_cast<double>(a.shape()[d]);
  return run({.operation = op, .rule = reduction_rule, .attributes = r.attributes, .where = x.where()}, {&a},
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
  static const Operation op{"softmax", "", nonlinear};
  const Array a = floating(x);
  materialized(a, "softmax");
  dim = checked_dim("softmax", a, dim);
  return run({.operation = op, .rule = softmax_rule, .attributes = {dim}, .where = x.where()}, {&a},
             [dim](Locals t, const Where&) { return at::softmax(t[0], dim); });
}

}  // namespace tessera
