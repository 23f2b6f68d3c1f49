// Random arrays and constants, made block by block.
#include "sharding/recipe.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/lt.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "sharding/number.h"
#include "sharding/threefry.h"

namespace tessera {
namespace detail {
namespace {

template <class T>
void draw(const Recipe& recipe, const Shape& shape, const IndexRanges& block, T* out) {
  switch (recipe.initializer) {
    case Initializer::uniform:
      return random_uniform(recipe.key, shape, block, recipe.low, recipe.high, out);
    case Initializer::normal:
      return random_normal(recipe.key, shape, block, out);
    case Initializer::truncated_normal:
      return random_truncated_normal(recipe.key, shape, block, recipe.low, recipe.high, out);
    case Initializer::exponential:
      return random_exponential(recipe.key, shape, block, out);
    case Initializer::gumbel:
      return random_gumbel(recipe.key, shape, block, out);
    default:
      fail(ErrorKind::other, "place", "this recipe draws no floating numbers.");
  }
}

template <class T>
at::Tensor integers(const Recipe& recipe, const Shape& shape, const IndexRanges& block, at::Tensor out) {
  random_integers(recipe.key, shape, block, recipe.first, recipe.span, out.mutable_data_ptr<T>());
  return out;
}

at::Tensor bits(const Recipe& recipe, const Shape& shape, const IndexRanges& block, at::Tensor out) {
  std::vector<uint32_t> words(out.numel());
  random_bits(recipe.key, shape, block, words.data());
  std::copy(words.begin(), words.end(), out.mutable_data_ptr<int64_t>());
  return out;
}

std::vector<int64_t> sizes_of(const IndexRanges& block) {
  std::vector<int64_t> sizes;
  for (const auto& [start, stop] : block) sizes.push_back(stop - start);
  return sizes;
}

at::Tensor floats(const Recipe& recipe, const Shape& shape, const IndexRanges& block, at::Tensor out) {
  if (recipe.drawn == DType::float64)
    draw(recipe, shape, block, out.mutable_data_ptr<double>());
  else
    draw(recipe, shape, block, out.mutable_data_ptr<float>());
  return out;
}

at::Tensor chances(Recipe recipe, const Shape& shape, const IndexRanges& block, const at::Tensor& uniforms) {
  const auto chance = static_cast<float>(recipe.high);
  recipe = {.initializer = Initializer::uniform, .key = recipe.key};
  return at::lt(floats(recipe, shape, block, uniforms), chance);
}

// What is drawn, before it is scaled and cast.
at::Tensor drawn(const Recipe& recipe, const Shape& shape, const IndexRanges& block) {
  const auto empty = [&](DType dtype) { return at::empty(sizes_of(block), static_cast<at::ScalarType>(dtype)); };
  const at::Tensor out = empty(recipe.drawn);
  switch (recipe.initializer) {
    case Initializer::bernoulli:
      return chances(recipe, shape, block, empty(DType::float32));
    case Initializer::bits:
      return bits(recipe, shape, block, out);
    case Initializer::integers:
      if (recipe.drawn == DType::uint8) return integers<uint8_t>(recipe, shape, block, out);
      if (recipe.drawn == DType::int64) return integers<int64_t>(recipe, shape, block, out);
      return integers<int32_t>(recipe, shape, block, out);
    default:
      return floats(recipe, shape, block, out);
  }
}

// The function that makes such an array, for errors.
const char* verb_of(Initializer initializer) {
  switch (initializer) {
    case Initializer::uniform:
      return "uniform";
    case Initializer::normal:
      return "normal";
    case Initializer::truncated_normal:
      return "truncated_normal";
    case Initializer::exponential:
      return "exponential";
    case Initializer::gumbel:
      return "gumbel";
    case Initializer::bernoulli:
      return "bernoulli";
    case Initializer::bits:
      return "bits";
    case Initializer::integers:
      return "randint";
    default:
      return "full";
  }
}

}  // namespace

Array make_recipe(const Recipe& recipe, Shape shape, DType dtype) {
  ArrayPtr made = make_array(intern({.dtype = dtype, .shape = std::move(shape)}, verb_of(recipe.initializer)), 0, {});
  made->detail().recipe = std::make_shared<const Recipe>(recipe);
  return Array(std::move(made));
}

at::Tensor generate(const Recipe& recipe, DType dtype, const Shape& shape, const IndexRanges& block) try {
  const auto type = static_cast<at::ScalarType>(dtype);
  if (recipe.initializer == Initializer::constant)
    return at::full(sizes_of(block), element_value("full", recipe.scale + recipe.shift, recipe.drawn),
                    static_cast<at::ScalarType>(recipe.drawn))
        .to(type);
  at::Tensor values = drawn(recipe, shape, block);
  if (!is_floating(recipe.drawn)) values = values.to(type);
  if (recipe.scale != 1) values.mul_(recipe.scale);
  if (recipe.shift != 0) values.add_(recipe.shift);
  return values.to(type);
} catch (const c10::Error&) {
  fail(ErrorKind::other, "place",
       fmt::format("no memory for a block of {}[{}].", name_of(dtype), fmt::join(sizes_of(block), ",")));
}

Array scaled(const Array& x, double factor) {
  Recipe recipe = *x.impl()->details->recipe;
  recipe.scale *= factor;
  recipe.shift *= factor;
  return make_recipe(recipe, x.shape(), x.dtype());
}

bool can_recast(const Array& x) { return x.dtype() == x.impl()->details->recipe->drawn; }

Array recast(const Array& x, DType dtype) { return make_recipe(*x.impl()->details->recipe, x.shape(), dtype); }

}  // namespace detail
}  // namespace tessera
