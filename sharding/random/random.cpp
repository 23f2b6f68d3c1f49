// Random arrays: one generator per distribution over counter-based numbers, and functions that use them.
#include "sharding/random/random.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "sharding/array/late_checks.h"
#include "sharding/array/padding.h"
#include "sharding/array/recipe.h"
#include "sharding/base/fail.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/index/indexing.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/placement/element_value.h"
#include "sharding/propagation/run.h"
#include "sharding/random/device_draws.h"
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

using GeneratorPtr = std::shared_ptr<const Generator>;

// The distribution from which an accelerator draws the same numbers as the host. The host draws the others: integers,
// float64, and uniform numbers in the rare intervals that require a fused multiply-add.
struct DeviceLaw {
  std::optional<Law> law;
  Key key;
  double low = 0, high = 1;
  float least = -std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::infinity(), chance = 1;
};

// Generates blocks by draw(global shape, block), which returns the block's tensor.
template <class Draw>
class Sampler : public Generator {
 public:
  Sampler(const char* name, Draw draw, DeviceLaw law) : name_(name), draw_(std::move(draw)), law_(law) {}
  const char* name() const override { return name_; }
  at::Tensor block(const Shape& global, const IndexRanges& block, c10::Device device) const override {
    if (device.is_cpu()) return draw_(global, block);
    if (law_.law && uniforms().rounding != Rounding::fused) return on(device, global, block);
    return moved_to(draw_(global, block), device);
  }

 private:
  Interval<float> uniforms() const { return {law_.low, law_.high}; }

  at::Tensor on(c10::Device device, const Shape& global, const IndexRanges& block) const {
    BlockDraw draw = block_draw(*law_.law, law_.key, uniforms(), global, block);
    draw.least = law_.least, draw.most = law_.most, draw.chance = law_.chance;
    return drawn_on(draw, sizes_of(block), device);
  }

  const char* name_;
  Draw draw_;
  DeviceLaw law_;
};

template <class Draw>
GeneratorPtr sampler(const char* name, Draw draw, DeviceLaw law = {}) {
  return std::make_shared<Sampler<Draw>>(name, std::move(draw), law);
}

at::Tensor empty_block(const IndexRanges& block, DType dtype) { return at::empty(sizes_of(block), scalar_type(dtype)); }

// Returns a lazy initializer of floating numbers, drawn in float64 if `dtype` is float64, else in float32. fill(global
// shape, block, out) writes the numbers of a block to out, a pointer to float or double.
template <class Fill>
Array floating_recipe(const char* verb, Shape shape, DType dtype, const DeviceLaw& law, Fill fill) {
  check_floating(verb, dtype);
  const DType drawn = dtype == float64 ? float64 : float32;
  const auto draw = [drawn, fill](const Shape& global, const IndexRanges& block) {
    at::Tensor out = empty_block(block, drawn);
    if (drawn == float64)
      fill(global, block, out.mutable_data_ptr<double>());
    else
      fill(global, block, out.mutable_data_ptr<float>());
    return out;
  };
  const GeneratorPtr generator = sampler(verb, draw, drawn == float32 ? law : DeviceLaw());
  return make_recipe({.generator = generator, .drawn = drawn}, std::move(shape), dtype);
}

template <class T>
GeneratorPtr integers(const Key& key, DType drawn, int64_t first, uint64_t span) {
  return sampler("randint", [=](const Shape& global, const IndexRanges& block) {
    at::Tensor out = empty_block(block, drawn);
    random_integers(key, global, block, first, span, out.mutable_data_ptr<T>());
    return out;
  });
}

GeneratorPtr bernoulli_generator(const Key& key, double p) {
  const auto chance = static_cast<float>(p);
  const auto draw = [key, chance](const Shape& global, const IndexRanges& block) {
    at::Tensor uniforms = empty_block(block, float32);
    random_uniform(key, global, block, 0, 1, uniforms.mutable_data_ptr<float>());
    return at::lt(uniforms, chance);
  };
  return sampler("bernoulli", draw, {.law = Law::bernoulli, .key = key, .chance = chance});
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
  return floating_recipe(
      "normal", std::move(shape), dtype, {Law::normal, key, std::nextafter(-1.0f, 0.0f), 1},
      [key](const Shape& global, const IndexRanges& block, auto* out) { random_normal(key, global, block, out); });
}

Array truncated_normal(const Key& key, double lower, double upper, Shape shape, DType dtype) {
  if (!(lower < upper))
    fail(ErrorKind::invalid_argument, "truncated_normal",
         "the bounds are {} and {}. The lower bound must be below the upper one.", lower, upper);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const auto a = static_cast<float>(lower), b = static_cast<float>(upper);
  const DeviceLaw law{.law = Law::normal,
                      .key = key,
                      .low = std::erf(a / std::sqrt(2.0)),
                      .high = std::erf(b / std::sqrt(2.0)),
                      .least = std::nextafter(a, infinity),
                      .most = std::nextafter(b, -infinity)};
  return floating_recipe("truncated_normal", std::move(shape), dtype, law,
                         [=](const Shape& global, const IndexRanges& block, auto* out) {
                           random_truncated_normal(key, global, block, lower, upper, out);
                         });
}

Array uniform(const Key& key, Shape shape, double low, double high, DType dtype) {
  return floating_recipe("uniform", std::move(shape), dtype, {Law::uniform, key, low, high},
                         [=](const Shape& global, const IndexRanges& block, auto* out) {
                           random_uniform(key, global, block, low, high, out);
                         });
}

Array exponential(const Key& key, Shape shape, DType dtype) {
  return floating_recipe(
      "exponential", std::move(shape), dtype, {Law::exponential, key},
      [key](const Shape& global, const IndexRanges& block, auto* out) { random_exponential(key, global, block, out); });
}

Array gumbel(const Key& key, Shape shape, DType dtype) {
  return floating_recipe(
      "gumbel", std::move(shape), dtype, {Law::gumbel, key, std::numeric_limits<float>::min(), 1},
      [key](const Shape& global, const IndexRanges& block, auto* out) { random_gumbel(key, global, block, out); });
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
  const GeneratorPtr generator = dtype == uint8   ? integers<uint8_t>(key, dtype, minval, span)
                                 : dtype == int64 ? integers<int64_t>(key, dtype, minval, span)
                                                  : integers<int32_t>(key, dtype, minval, span);
  return make_recipe({.generator = generator, .drawn = dtype}, std::move(shape), dtype);
}

Array bits(const Key& key, Shape shape) {
  const auto draw = [key](const Shape& global, const IndexRanges& block) {
    at::Tensor out = empty_block(block, int64);
    std::vector<uint32_t> words(out.numel());
    random_bits(key, global, block, words.data());
    std::copy(words.begin(), words.end(), out.mutable_data_ptr<int64_t>());
    return out;
  };
  const GeneratorPtr generator = sampler("bits", draw, {.law = Law::bits, .key = key});
  return make_recipe({.generator = generator, .drawn = int64}, std::move(shape), int64);
}

// ---- draws

namespace {

// Returns `noise` sharded like x, so that each device draws its own block. Leading dimensions that x does not have are
// not sharded.
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

// Returns 0 to n - 1 sorted by random keys, in enough rounds that equal keys have no effect.
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
  const int d = checked_dim("permutation", x.array(), dim);
  return take(x, permutation(key, x.array().shape(d)), d);
}

// ---- dropout

namespace {

// Returns the ranges of this call's block in the global array, without padding.
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
