// One generator for each distribution, over the counter-based numbers of a block.
#include "sharding/random/samplers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/lt.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "sharding/random/threefry.h"

namespace tessera::detail {
namespace {

// draw(global shape, block): the block's tensor.
template <class Draw>
class Sampler : public Generator {
 public:
  Sampler(const char* name, Draw draw) : name_(name), draw_(std::move(draw)) {}
  const char* name() const override { return name_; }
  at::Tensor block(const Shape& global, const IndexRanges& block) const override { return draw_(global, block); }

 private:
  const char* name_;
  Draw draw_;
};

template <class Draw>
GeneratorPtr sampler(const char* name, Draw draw) {
  return std::make_shared<Sampler<Draw>>(name, std::move(draw));
}

at::Tensor empty_block(const IndexRanges& block, DType dtype) { return at::empty(sizes_of(block), scalar_type(dtype)); }

// fill(global shape, block, out) for out a pointer to float or double.
template <class Fill>
GeneratorPtr floating(const char* name, DType drawn, Fill fill) {
  return sampler(name, [drawn, fill](const Shape& global, const IndexRanges& block) {
    at::Tensor out = empty_block(block, drawn);
    if (drawn == float64)
      fill(global, block, out.mutable_data_ptr<double>());
    else
      fill(global, block, out.mutable_data_ptr<float>());
    return out;
  });
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
  return floating("normal", drawn, [key](const Shape& global, const IndexRanges& block, auto* out) {
    random_normal(key, global, block, out);
  });
}

GeneratorPtr truncated_normal_generator(const Key& key, DType drawn, double lower, double upper) {
  return floating("truncated_normal", drawn, [=](const Shape& global, const IndexRanges& block, auto* out) {
    random_truncated_normal(key, global, block, lower, upper, out);
  });
}

GeneratorPtr uniform_generator(const Key& key, DType drawn, double low, double high) {
  return floating("uniform", drawn, [=](const Shape& global, const IndexRanges& block, auto* out) {
    random_uniform(key, global, block, low, high, out);
  });
}

GeneratorPtr exponential_generator(const Key& key, DType drawn) {
  return floating("exponential", drawn, [key](const Shape& global, const IndexRanges& block, auto* out) {
    random_exponential(key, global, block, out);
  });
}

GeneratorPtr gumbel_generator(const Key& key, DType drawn) {
  return floating("gumbel", drawn, [key](const Shape& global, const IndexRanges& block, auto* out) {
    random_gumbel(key, global, block, out);
  });
}

GeneratorPtr bernoulli_generator(const Key& key, double p) {
  return sampler("bernoulli", [key, chance = static_cast<float>(p)](const Shape& global, const IndexRanges& block) {
    at::Tensor uniforms = empty_block(block, float32);
    random_uniform(key, global, block, 0, 1, uniforms.mutable_data_ptr<float>());
    return at::lt(uniforms, chance);
  });
}

GeneratorPtr integer_generator(const Key& key, DType drawn, int64_t first, uint64_t span) {
  if (drawn == uint8) return integers<uint8_t>(key, drawn, first, span);
  if (drawn == int64) return integers<int64_t>(key, drawn, first, span);
  return integers<int32_t>(key, drawn, first, span);
}

GeneratorPtr bit_generator(const Key& key) {
  return sampler("bits", [key](const Shape& global, const IndexRanges& block) {
    at::Tensor out = empty_block(block, int64);
    std::vector<uint32_t> words(out.numel());
    random_bits(key, global, block, words.data());
    std::copy(words.begin(), words.end(), out.mutable_data_ptr<int64_t>());
    return out;
  });
}

}  // namespace tessera::detail
