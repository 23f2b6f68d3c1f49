// One generator for each distribution, over the counter-based numbers of a block.
#include "sharding/random/samplers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/lt.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "sharding/array/late_checks.h"
#include "sharding/random/threefry.h"

namespace tessera::detail {
namespace {

// How an accelerator draws the same numbers. Without a law they are drawn on the host, as are those whose uniform
// numbers take a fused multiply-add: integers, float64, and rare intervals.
struct There {
  std::optional<Law> law;
  Key key;
  double low = 0, high = 1;
  float least = -std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::infinity(), chance = 1;
};

// `there`, if numbers are drawn in float32.
There if_float(DType drawn, There there) { return drawn == float32 ? there : There(); }

// draw(global shape, block): the block's tensor.
template <class Draw>
class Sampler : public Generator {
 public:
  Sampler(const char* name, Draw draw, There there) : name_(name), draw_(std::move(draw)), there_(there) {}
  const char* name() const override { return name_; }
  at::Tensor block(const Shape& global, const IndexRanges& block, c10::Device device) const override {
    if (device.is_cpu()) return draw_(global, block);
    if (there_.law && uniforms().rounding != Rounding::fused) return on(device, global, block);
    return moved_to(draw_(global, block), device);
  }

 private:
  Interval<float> uniforms() const { return {there_.low, there_.high}; }

  at::Tensor on(c10::Device device, const Shape& global, const IndexRanges& block) const {
    BlockDraw draw = block_draw(*there_.law, there_.key, uniforms(), global, block);
    draw.least = there_.least, draw.most = there_.most, draw.chance = there_.chance;
    return drawn_on(draw, sizes_of(block), device);
  }

  const char* name_;
  Draw draw_;
  There there_;
};

template <class Draw>
GeneratorPtr sampler(const char* name, Draw draw, There there = {}) {
  return std::make_shared<Sampler<Draw>>(name, std::move(draw), there);
}

at::Tensor empty_block(const IndexRanges& block, DType dtype) { return at::empty(sizes_of(block), scalar_type(dtype)); }

// fill(global shape, block, out) for out a pointer to float or double.
template <class Fill>
GeneratorPtr floating(const char* name, DType drawn, const There& there, Fill fill) {
  return sampler(
      name,
      [drawn, fill](const Shape& global, const IndexRanges& block) {
        at::Tensor out = empty_block(block, drawn);
        if (drawn == float64)
          fill(global, block, out.mutable_data_ptr<double>());
        else
          fill(global, block, out.mutable_data_ptr<float>());
        return out;
      },
      if_float(drawn, there));
}

template <class T>
GeneratorPtr integers(const Key& key, DType drawn, int64_t first, uint64_t span) {
  return sampler("randint", [=](const Shape& global, const IndexRanges& block) {
    at::Tensor out = empty_block(block, drawn);
    random_integers(key, global, block, first, span, out.mutable_data_ptr<T>());
    return out;
  });
}

}  // namespace

GeneratorPtr normal_generator(const Key& key, DType drawn) {
  return floating(
      "normal", drawn, {Law::normal, key, std::nextafter(-1.0f, 0.0f), 1},
      [key](const Shape& global, const IndexRanges& block, auto* out) { random_normal(key, global, block, out); });
}

GeneratorPtr truncated_normal_generator(const Key& key, DType drawn, double lower, double upper) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const auto a = static_cast<float>(lower), b = static_cast<float>(upper);
  const There there{.law = Law::normal,
                    .key = key,
                    .low = std::erf(a / std::sqrt(2.0)),
                    .high = std::erf(b / std::sqrt(2.0)),
                    .least = std::nextafter(a, infinity),
                    .most = std::nextafter(b, -infinity)};
  return floating("truncated_normal", drawn, there, [=](const Shape& global, const IndexRanges& block, auto* out) {
    random_truncated_normal(key, global, block, lower, upper, out);
  });
}

GeneratorPtr uniform_generator(const Key& key, DType drawn, double low, double high) {
  return floating("uniform", drawn, {Law::uniform, key, low, high},
                  [=](const Shape& global, const IndexRanges& block, auto* out) {
                    random_uniform(key, global, block, low, high, out);
                  });
}

GeneratorPtr exponential_generator(const Key& key, DType drawn) {
  return floating(
      "exponential", drawn, {Law::exponential, key},
      [key](const Shape& global, const IndexRanges& block, auto* out) { random_exponential(key, global, block, out); });
}

GeneratorPtr gumbel_generator(const Key& key, DType drawn) {
  return floating(
      "gumbel", drawn, {Law::gumbel, key, std::numeric_limits<float>::min(), 1},
      [key](const Shape& global, const IndexRanges& block, auto* out) { random_gumbel(key, global, block, out); });
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

GeneratorPtr integer_generator(const Key& key, DType drawn, int64_t first, uint64_t span) {
  if (drawn == uint8) return integers<uint8_t>(key, drawn, first, span);
  if (drawn == int64) return integers<int64_t>(key, drawn, first, span);
  return integers<int32_t>(key, drawn, first, span);
}

GeneratorPtr bit_generator(const Key& key) {
  const auto draw = [key](const Shape& global, const IndexRanges& block) {
    at::Tensor out = empty_block(block, int64);
    std::vector<uint32_t> words(out.numel());
    random_bits(key, global, block, words.data());
    std::copy(words.begin(), words.end(), out.mutable_data_ptr<int64_t>());
    return out;
  };
  return sampler("bits", draw, {.law = Law::bits, .key = key});
}

}  // namespace tessera::detail
