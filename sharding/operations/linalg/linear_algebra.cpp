// Products over arbitrary dimensions, computed by matrix products and einsum.
#include "sharding/operations/linalg/linear_algebra.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "sharding/base/fail.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/shape/shapes.h"
#include "sharding/propagation/run.h"

namespace tessera {

using namespace detail;

namespace {

const Operation outer_op{"outer", "i, j -> i j", Linearity::multilinear, Padded::kept};

}  // namespace

// ---- products over other dimensions

namespace {

// Returns the dimensions of one operand, counted from the front. Error (invalid_argument): a dimension given twice.
Dims checked_dims(const char* verb, const Array& x, const Dims& contract, const Dims& batch) {
  Dims dims = contract;
  dims.insert(dims.end(), batch.begin(), batch.end());
  for (int& d : dims) d = checked_dim(verb, x, d);
  Dims sorted = dims;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    fail(ErrorKind::invalid_argument, verb, "a dim of {} given twice.", x.type_string());
  return dims;
}

std::string first_letters(size_t n, char first) {
  std::string letters;
  for (size_t i = 0; i < n; ++i) letters += static_cast<char>(first + i);
  return letters;
}

std::string without(std::string letters, const std::string& others) {
  std::erase_if(letters, [&](char c) { return others.find(c) != std::string::npos; });
  return letters;
}

void check_pairs(const char* verb, const Array& a, const Array& b, const Dims& left, const Dims& right) {
  if (left.size() != right.size())
    fail(ErrorKind::invalid_argument, verb, "{} dims of {} and {} of {}, expected as many.", left.size(),
         a.type_string(), right.size(), b.type_string());
  for (size_t i = 0; i < left.size(); ++i)
    if (a.shape(left[i]) != b.shape(right[i]))
      fail(ErrorKind::shape_mismatch, verb, "dim {} of {} and dim {} of {} are not of one size.", left[i],
           a.type_string(), right[i], b.type_string());
}

Array general_product(const char* verb, const Operand& a, const Operand& b, const DotDims& dims,
                      const ResultOptions& options) {
  const Array &x = a.array(), &y = b.array();
  materialized(x, verb), materialized(y, verb);
  const Dims left = checked_dims(verb, x, dims.contract.first, dims.batch.first);
  const Dims right = checked_dims(verb, y, dims.contract.second, dims.batch.second);
  check_pairs(verb, x, y, dims.contract.first, dims.contract.second);
  check_pairs(verb, x, y, dims.batch.first, dims.batch.second);
  const std::string in = first_letters(x.ndim(), 'a');
  std::string other = first_letters(y.ndim(), 'A'), summed, batch;
  for (size_t i = 0; i < left.size(); ++i) {
    other[right[i]] = in[left[i]];
    (i < dims.contract.first.size() ? summed : batch) += in[left[i]];
  }
  const std::string equation =
      fmt::format("{},{}->{}{}{}", in, other, batch, without(in, summed + batch), without(other, summed + batch));
  return einsum(equation, {x, y}, options, a.where());
}

bool is_scalar(const char* verb, const Operand& x) { return materialized(x.array(), verb).type->shape.empty(); }

}  // namespace

Array dot_general(Operand a, Operand b, const DotDims& dims, const ResultOptions& options) {
  return general_product("dot_general", a, b, dims, options);
}

Array tensordot(Operand a, Operand b, int dims, const ResultOptions& options) {
  const int last = static_cast<int>(materialized(a.array(), "tensordot").type->shape.size());
  if (dims < 0 || dims > std::min(last, b.array().ndim()))
    fail(ErrorKind::invalid_argument, "tensordot", "over {} dims of {} and {}.", dims, a.array().type_string(),
         b.array().type_string());
  DotDims pairs;
  for (int i = 0; i < dims; ++i) pairs.contract.first.push_back(last - dims + i), pairs.contract.second.push_back(i);
  return general_product("tensordot", a, b, pairs, options);
}

Array tensordot(Operand a, Operand b, const std::pair<Dims, Dims>& dims, const ResultOptions& options) {
  return general_product("tensordot", a, b, {.contract = dims}, options);
}

Array dot(Operand a, Operand b, const ResultOptions& options) {
  if (is_scalar("dot", a) || is_scalar("dot", b)) return placed_result(a * b, options, "dot", a.where());
  return general_product("dot", a, b, {.contract = {{-1}, {b.array().ndim() > 1 ? -2 : -1}}}, options);
}

Array inner(Operand a, Operand b, const ResultOptions& options) {
  if (is_scalar("inner", a) || is_scalar("inner", b)) return placed_result(a * b, options, "inner", a.where());
  return general_product("inner", a, b, {.contract = {{-1}, {-1}}}, options);
}

Array vdot(Operand a, Operand b, const ResultOptions& options) {
  const Array &x = a.array(), &y = b.array();
  if (materialized(x, "vdot").type->shape != materialized(y, "vdot").type->shape) {
    const Array u = reshape(a, {-1}), v = reshape(b, {-1});
    return general_product("vdot", {u, a.where()}, {v, b.where()}, {.contract = {{0}, {0}}}, options);
  }
  const Dims all = consecutive_dims(x.ndim());
  return general_product("vdot", a, b, {.contract = {all, all}}, options);
}

Array outer(Operand a, Operand b, const ResultOptions& options) {
  const Type &left = *materialized(a.array(), "outer").type, &right = *materialized(b.array(), "outer").type;
  if (left.shape.size() == 1 && right.shape.size() == 1 && left.dtype == right.dtype)
    return placed_result(run({.operation = outer_op, .where = a.where()}, {&a.array(), &b.array()},
                             [](Locals t, const BlockContext&) { return at::outer(t[0], t[1]); }),
                         options, "outer", a.where());
  const Array column = reshape(a, {-1, 1}), row = reshape(b, {1, -1});
  return placed_result(Operand(column, a.where()) * Operand(row, b.where()), options, "outer", a.where());
}

}  // namespace tessera
