// Creates arrays block by block, each from its position.
#include "sharding/operations/shape/creation.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "sharding/array/recipe.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise_call.h"
#include "sharding/operations/shape/make_array.h"
#include "sharding/placement/element_value.h"
#include "sharding/propagation/run.h"
#include "sharding/redistribution/device_put.h"

namespace tessera {

using namespace detail;

namespace {

const Operation tril_op{"tril", "... r c -> ... r c", Linearity::additive, Padded::kept};
const Operation triu_op{"triu", "... r c -> ... r c", Linearity::additive, Padded::kept};

Array placed(Array x, const std::optional<NamedSharding>& sharding) { return sharding ? device_put(x, *sharding) : x; }

template <class Make>
Array made_block(const Make& make, const IndexRanges& block, DType dtype) try {
  return from_tensor(make(block).to(scalar_type(dtype)).contiguous());
} catch (const std::exception& error) {
  rethrow_failed_block(error, dtype, sizes_of(block));
}

// Makes an array from `make(block)`, which returns the tensor of a block.
template <class Make>
Array from_blocks(const char* verb, const Shape& shape, DType dtype, const std::optional<NamedSharding>& sharding,
                  Make make) {
  check_size(verb, dtype, shape);
  const auto block = [&](const IndexRanges& ranges) { return made_block(make, ranges, dtype); };
  if (!sharding) return block(whole_block(shape));
  const NamedSharding value(sharding->mesh(), PartitionSpec(sharding->spec().entries()));
  return device_put(make_array_from_callback(shape, value, block), *sharding);
}

}  // namespace

// ---- constants

Array full(Shape shape, double value, const CreationOptions& options) {
  return placed(full(std::move(shape), value, options.dtype.value_or(float32)), options.out_sharding);
}
Array zeros(Shape shape, const CreationOptions& options) { return full(std::move(shape), 0, options); }
Array ones(Shape shape, const CreationOptions& options) { return full(std::move(shape), 1, options); }

Array full_like(const Array& x, double value, const CreationOptions& options) {
  CreationOptions like = options;
  if (!like.dtype) like.dtype = x.dtype();
  if (!like.out_sharding && x.is_committed()) {
    const NamedSharding sharding = x.sharding();
    like.out_sharding = NamedSharding(sharding.mesh(), PartitionSpec(sharding.spec().entries()));
  }
  Array result = full(x.shape(), value, like);
  result.impl()->mesh_rules = x.impl()->mesh_rules;
  return result;
}
Array zeros_like(const Array& x, const CreationOptions& options) { return full_like(x, 0, options); }
Array ones_like(const Array& x, const CreationOptions& options) { return full_like(x, 1, options); }

// ---- sequences

namespace {

// Returns the indices of a block along one dimension.
at::Tensor indices_of(const IndexRanges& block, int dim) {
  return at::arange(block[dim].first, block[dim].second, at::kLong);
}

// Checks both ends of a sequence; the numbers between are within them.
template <class Value>
void check_ends(const char* verb, Value first, Value last, DType dtype) {
  if (is_floating(dtype)) return;
  element_value(verb, first, dtype);
  element_value(verb, last, dtype);
}

// Returns start + i step exactly, or the nearest 64-bit integer if it overflows.
int64_t whole_element(int64_t start, int64_t step, int64_t i) {
  int64_t distance = 0, value = 0;
  if (!__builtin_mul_overflow(i, step, &distance) && !__builtin_add_overflow(start, distance, &value)) return value;
  return step > 0 ? std::numeric_limits<int64_t>::max() : std::numeric_limits<int64_t>::min();
}

// Returns the number of elements from start to stop, excluding stop.
uint64_t whole_count(int64_t start, int64_t stop, int64_t step) {
  if (step > 0 ? start >= stop : start <= stop) return 0;
  const auto minus = [](int64_t a, int64_t b) { return static_cast<uint64_t>(a) - static_cast<uint64_t>(b); };
  return step > 0 ? (minus(stop, start) - 1) / minus(step, 0) + 1 : (minus(start, stop) - 1) / minus(0, step) + 1;
}

}  // namespace

Array arange(Number stop, const CreationOptions& options) { return arange(0, stop, 1, options); }

Array arange(Number start, Number stop, Number step, const CreationOptions& options) {
  if (step.floating == 0) fail(ErrorKind::invalid_argument, "arange", "a step of 0 given, expected another number.");
  const auto whole = [](const Number& n) { return n.kind != Number::Kind::floating; };
  const bool integers = whole(start) && whole(stop) && whole(step);
  const double count = integers ? static_cast<double>(whole_count(start.integer, stop.integer, step.integer))
                                : std::ceil((stop.floating - start.floating) / step.floating);
  constexpr double most = 0x1p59;  // elements of 8 bytes each
  if (!(count < most))
    fail(ErrorKind::invalid_argument, "arange",
         "{} to {} in steps of {} given, expected a finite number of elements below 2^59.", text_of(start),
         text_of(stop), text_of(step));
  const Shape shape{static_cast<int64_t>(std::max(count, 0.0))};
  const DType dtype = options.dtype.value_or(integers ? int32 : float32);
  if (shape[0] > 0 && integers)
    check_ends("arange", start.integer, whole_element(start.integer, step.integer, shape[0] - 1), dtype);
  else if (shape[0] > 0)
    check_ends("arange", start.floating, start.floating + static_cast<double>(shape[0] - 1) * step.floating, dtype);
  return from_blocks("arange", shape, dtype, options.out_sharding, [&](const IndexRanges& block) {
    const at::Tensor i = indices_of(block, 0);
    if (integers) return i.mul(step.integer).add(start.integer);
    return i.to(at::kDouble).mul(step.floating).add(start.floating);
  });
}

Array linspace(double start, double stop, int64_t num, const LinspaceOptions& options) {
  if (num < 0) fail(ErrorKind::invalid_argument, "linspace", "{} numbers given, expected 0 or more.", num);
  const double steps = static_cast<double>(std::max<int64_t>(options.endpoint ? num - 1 : num, 1));
  const DType dtype = options.dtype.value_or(float32);
  const double last = static_cast<double>(std::max<int64_t>(num - 1, 0)) / steps;
  if (num > 0) check_ends("linspace", start, stop * last + start * (1 - last), dtype);
  return from_blocks("linspace", {num}, dtype, options.out_sharding, [&](const IndexRanges& block) {
    const at::Tensor t = indices_of(block, 0).to(at::kDouble).div(steps);
    const at::Tensor values = t.mul(stop).add(t.neg().add(1).mul(start));
    return is_floating(dtype) || dtype == boolean ? values : values.floor();
  });
}

Array broadcasted_iota(DType dtype, Shape shape, int dim, const std::optional<NamedSharding>& out_sharding) {
  const int n = static_cast<int>(shape.size());
  if (dim < 0 || dim >= n)
    fail(ErrorKind::invalid_argument, "broadcasted_iota",
         n ? fmt::format("dim {} of the shape {}, expected 0 to {}.", dim, to_string(shape), n - 1)
           : fmt::format("dim {} of the shape (), which has no dims.", dim));
  return from_blocks("broadcasted_iota", shape, dtype, out_sharding, [&](const IndexRanges& block) {
    const Shape sizes = sizes_of(block);
    Shape along(n, 1);
    along[dim] = sizes[dim];
    return indices_of(block, dim).view(along).expand(sizes);
  });
}

// ---- diagonals

namespace {

// Returns ones where `holds(column - row, k)`, zeros elsewhere.
template <class Holds>
Array of_distances(const char* verb, int64_t rows, const DiagonalOptions& options, Holds holds) {
  const Shape shape{rows, options.columns.value_or(rows)};
  return from_blocks(verb, shape, options.dtype.value_or(float32), options.out_sharding, [&](const IndexRanges& block) {
    return holds(indices_of(block, 1) - indices_of(block, 0).unsqueeze(1), options.k);
  });
}

// Returns the diagonal in a block's own coordinates: shifted by the block's offsets.
int64_t local_diagonal(const BlockContext& block, int64_t k) { return k + block.offset("r") - block.offset("c"); }

void check_matrix(const char* verb, const Array& x) {
  if (materialized(x, verb).type->shape.size() < 2)
    fail(ErrorKind::shape_mismatch, verb, "given {}, expected two dims or more.", x.type_string());
}

}  // namespace

Array eye(int64_t rows, const DiagonalOptions& options) {
  return of_distances("eye", rows, options, [](const at::Tensor& distance, int64_t k) { return at::eq(distance, k); });
}

Array tri(int64_t rows, const DiagonalOptions& options) {
  return of_distances("tri", rows, options, [](const at::Tensor& distance, int64_t k) { return at::le(distance, k); });
}

Array tril(Operand x, int64_t k) {
  check_matrix("tril", x.array());
  return run({.operation = tril_op, .where = x.where()}, {&x.array()},
             [k](Locals t, const BlockContext& block) { return at::tril(t[0], local_diagonal(block, k)); });
}

Array triu(Operand x, int64_t k) {
  check_matrix("triu", x.array());
  return run({.operation = triu_op, .where = x.where()}, {&x.array()},
             [k](Locals t, const BlockContext& block) { return at::triu(t[0], local_diagonal(block, k)); });
}

}  // namespace tessera
