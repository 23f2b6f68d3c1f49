// Random arrays and what is drawn with them.
#include "sharding/random/random.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "sharding/array/padding.h"
#include "sharding/array/recipe.h"
#include "sharding/base/fail.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/index/indexing.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/placement/element_value.h"
#include "sharding/propagation/run.h"
#include "sharding/random/samplers.h"
#include "sharding/random/threefry.h"
#include "sharding/redistribution/device_put.h"

namespace tessera {

using namespace detail;

namespace {

const Operation dropout_op{"dropout", "*", Linearity::additive, Padded::kept};

}  // namespace

// ---- recipes

namespace {

void check_floating(const char* verb, DType dtype) {
  if (!is_floating(dtype))
    fail(ErrorKind::dtype_mismatch, verb, "dtype {} given, expected a floating one.", name_of(dtype));
}

// Random numbers are drawn in float32, or in float64 if that is asked for.
DType drawn_for(DType dtype) { return dtype == DType::float64 ? DType::float64 : DType::float32; }

// make(drawn): the generator.
template <class Make>
Array floating_recipe(const char* verb, Shape shape, DType dtype, Make make) {
  check_floating(verb, dtype);
  const DType drawn = drawn_for(dtype);
  return make_recipe({.generator = make(drawn), .drawn = drawn}, std::move(shape), dtype);
}

void check_probability(const char* verb, const char* what, double p) {
  if (!(p >= 0 && p <= 1)) fail(ErrorKind::invalid_argument, verb, "{} {} given, expected 0 to 1.", what, p);
}

int64_t largest_of(DType dtype) {
  if (dtype == uint8) return std::numeric_limits<uint8_t>::max();
  if (dtype == int32) return std::numeric_limits<int32_t>::max();
  if (dtype == int64) return std::numeric_limits<int64_t>::max();
  fail(ErrorKind::dtype_mismatch, "randint", "dtype {} given, expected int32, int64 or uint8.", name_of(dtype));
}

}  // namespace

Array normal(const Key& key, Shape shape, DType dtype) {
  return floating_recipe("normal", std::move(shape), dtype, [&](DType drawn) { return normal_generator(key, drawn); });
}

Array truncated_normal(const Key& key, double lower, double upper, Shape shape, DType dtype) {
  if (!(lower < upper))
    fail(ErrorKind::invalid_argument, "truncated_normal",
         "the bounds are {} and {}. The lower bound must be below the upper one.", lower, upper);
  return floating_recipe("truncated_normal", std::move(shape), dtype,
                         [&](DType drawn) { return truncated_normal_generator(key, drawn, lower, upper); });
}

Array uniform(const Key& key, Shape shape, double low, double high, DType dtype) {
  return floating_recipe("uniform", std::move(shape), dtype,
                         [&](DType drawn) { return uniform_generator(key, drawn, low, high); });
}

Array exponential(const Key& key, Shape shape, DType dtype) {
  return floating_recipe("exponential", std::move(shape), dtype,
                         [&](DType drawn) { return exponential_generator(key, drawn); });
}

Array gumbel(const Key& key, Shape shape, DType dtype) {
  return floating_recipe("gumbel", std::move(shape), dtype, [&](DType drawn) { return gumbel_generator(key, drawn); });
}

Array bernoulli(const Key& key, double p, Shape shape) {
  check_probability("bernoulli", "p", p);
  return make_recipe({.generator = bernoulli_generator(key, p), .drawn = boolean}, std::move(shape), boolean);
}

Array randint(const Key& key, Shape shape, int64_t minval, int64_t maxval, DType dtype) {
  const int64_t most = largest_of(dtype), least = dtype == uint8 ? 0 : -most - 1;
  if (minval >= maxval || minval < least || maxval - 1 > most)
    fail(ErrorKind::invalid_argument, "randint", "range [{}, {}) given, expected a non-empty one of {}.", minval,
         maxval, name_of(dtype));
  const uint64_t span = static_cast<uint64_t>(maxval) - static_cast<uint64_t>(minval);
  return make_recipe({.generator = integer_generator(key, dtype, minval, span), .drawn = dtype}, std::move(shape),
                     dtype);
}

Array bits(const Key& key, Shape shape) {
  return make_recipe({.generator = bit_generator(key), .drawn = int64}, std::move(shape), int64);
}

// ---- draws

namespace {

// `noise` where x lies, so that each device draws its own block; its dims in front of x's are not cut.
Array placed_like(const Array& noise, const Array& x) {
  if (!x.is_committed()) return noise;
  std::vector<SpecEntry> entries(noise.ndim() - x.ndim());
  for (const SpecEntry& entry : x.sharding().spec().entries()) entries.push_back(entry);
  return device_put(noise, NamedSharding(x.sharding().mesh(), PartitionSpec(entries)));
}

}  // namespace

Array categorical(const Key& key, Operand logits, int dim, const std::optional<Shape>& shape) {
  const Array& x = logits.array();
  materialized(x, "categorical");
  check_floating("categorical", x.dtype());
  const int d = checked_dim("categorical", x, dim);
  Shape draws = x.shape();
  draws.erase(draws.begin() + d);
  const Shape wanted = shape.value_or(draws);
  if (wanted.size() < draws.size() || !std::equal(draws.rbegin(), draws.rend(), wanted.rbegin()))
    fail(ErrorKind::shape_mismatch, "categorical", "shape {} for logits {}, expected one that ends in {}.",
         to_string(wanted), x.type_string(), to_string(draws));
  check_size("categorical", x.dtype(), wanted);
  if (x.shape(d) == 0)
    fail(ErrorKind::invalid_argument, "categorical", "{} has no categories along dim {}, expected one or more.",
         x.type_string(), d);
  Shape noise(wanted.begin(), wanted.end() - draws.size());
  noise.insert(noise.end(), x.shape().begin(), x.shape().end());
  const Array disturbed = logits + Operand(placed_like(gumbel(key, noise, x.dtype()), x), logits.where());
  return argmax({disturbed, logits.where()}, d - x.ndim());
}

namespace {

// Sorted by random keys, in so many rounds that equal keys leave no trace.
std::vector<int32_t> shuffled(Key key, int64_t n) {
  constexpr double exponent = 3, most = std::numeric_limits<uint32_t>::max();
  std::vector<int32_t> order(n), sorted(n);
  std::iota(order.begin(), order.end(), 0);
  const auto rounds = static_cast<int>(std::ceil(exponent * std::log(std::max<double>(1, n)) / std::log(most)));
  std::vector<uint32_t> words(n);
  std::vector<int64_t> places(n);
  for (int i = 0; i < rounds; ++i) {
    const auto [next, drawn] = split<2>(key);
    key = next;
    random_bits(drawn, {n}, {{0, n}}, words.data());
    std::iota(places.begin(), places.end(), 0);
    std::stable_sort(places.begin(), places.end(), [&](int64_t a, int64_t b) { return words[a] < words[b]; });
    for (int64_t k = 0; k < n; ++k) sorted[k] = order[places[k]];
    order.swap(sorted);
  }
  return order;
}

}  // namespace

Array permutation(const Key& key, int64_t n) {
  if (n < 0 || n > std::numeric_limits<int32_t>::max())
    fail(ErrorKind::invalid_argument, "permutation", "n = {} given, expected 0 to 2^31 - 1.", n);
  return array<int32_t>(shuffled(key, n), {n});
}

Array permutation(const Key& key, Operand x, int dim) {
  materialized(x.array(), "permutation");
  const int d = checked_dim("permutation", x.array(), dim);
  return take(x, permutation(key, x.array().shape(d)), d);
}

// ---- dropout

namespace {

// Where the block that this call computes lies in the whole array, without padding.
IndexRanges block_here(const Shape& global, const at::Tensor& local, const BlockContext& block) {
  IndexRanges ranges;
  for (size_t d = 0; d < global.size(); ++d) {
    const int64_t start = global[d] == 1 ? 0 : block.offset(fmt::format("*{}", d));
    ranges.emplace_back(std::min(start, global[d]), std::min(start + local.size(static_cast<int64_t>(d)), global[d]));
  }
  return ranges;
}

}  // namespace

Array dropout(const Key& key, Operand x, double rate) {
  const Array& a = x.array();
  materialized(a, "dropout");
  check_floating("dropout", a.dtype());
  check_probability("dropout", "rate", rate);
  if (rate == 0) return a;
  const double kept = 1 - rate;
  const Recipe recipe{.generator = bernoulli_generator(key, kept), .drawn = boolean};
  return run({.operation = dropout_op, .where = x.where()}, {&a}, [&](Locals t, const BlockContext& block) {
    const at::Tensor keep =
        t[0].is_meta()
            ? at::empty_like(t[0], at::kBool)
            : with_padding(generate(recipe, boolean, a.shape(), block_here(a.shape(), t[0], block), t[0].device()),
                           t[0].sizes().vec());
    return at::where(keep, t[0] / (kept > 0 ? kept : 1), at::Scalar(0));  // the gradient of x / 0 would be NaN
  });
}

}  // namespace tessera
