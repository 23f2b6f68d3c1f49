// Random arrays and constants, made block by block.
#include "sharding/recipe.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "sharding/random.h"
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
    case Initializer::constant:
      return;
  }
}

std::vector<int64_t> sizes_of(const IndexRanges& block) {
  std::vector<int64_t> sizes;
  for (const auto& [start, stop] : block) sizes.push_back(stop - start);
  return sizes;
}

void check_floating(const char* verb, DType dtype) {
  if (!is_floating(dtype))
    fail(ErrorKind::dtype_mismatch, verb, fmt::format("dtype {} given, expected a floating one.", name_of(dtype)));
}

// Random numbers are drawn in float32, or in float64 if that is asked for.
DType drawn_for(DType dtype) { return dtype == DType::float64 ? DType::float64 : DType::float32; }

}  // namespace

Array make_recipe(const Recipe& recipe, Shape shape, DType dtype) {
  for (int64_t size : shape)
    if (size < 0)
      fail(ErrorKind::bad_argument, "shape", fmt::format("{} given, expected sizes from 0.", to_string(shape)));
  ArrayPtr made = make_array(uncommitted_type(dtype, std::move(shape)), 0, {});
  made->detail().recipe = std::make_shared<const Recipe>(recipe);
  return Array(std::move(made));
}

at::Tensor generate(const Recipe& recipe, DType dtype, const Shape& shape, const IndexRanges& block) try {
  const auto sizes = sizes_of(block);
  if (recipe.initializer == Initializer::constant)
    return at::full(sizes, recipe.scale + recipe.shift, static_cast<at::ScalarType>(dtype));
  at::Tensor values = at::empty(sizes, static_cast<at::ScalarType>(recipe.drawn));
  if (recipe.drawn == DType::float64)
    draw(recipe, shape, block, values.mutable_data_ptr<double>());
  else
    draw(recipe, shape, block, values.mutable_data_ptr<float>());
  if (recipe.scale != 1) values.mul_(recipe.scale);
  if (recipe.shift != 0) values.add_(recipe.shift);
  return values.to(static_cast<at::ScalarType>(dtype));
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

Array recast(const Array& x, DType dtype) { return make_recipe(*x.impl()->details->recipe, x.shape(), dtype); }

}  // namespace detail

using namespace detail;

Array normal(const Key& key, Shape shape, DType dtype) {
  check_floating("normal", dtype);
  return make_recipe({.initializer = Initializer::normal, .key = key, .drawn = drawn_for(dtype)}, std::move(shape),
                     dtype);
}

Array truncated_normal(const Key& key, double lower, double upper, Shape shape, DType dtype) {
  check_floating("truncated_normal", dtype);
  return make_recipe({.initializer = Initializer::truncated_normal,
                      .key = key,
                      .drawn = drawn_for(dtype),
                      .low = lower,
                      .high = upper},
                     std::move(shape), dtype);
}

Array uniform(const Key& key, Shape shape, double low, double high, DType dtype) {
  check_floating("uniform", dtype);
  return make_recipe(
      {.initializer = Initializer::uniform, .key = key, .drawn = drawn_for(dtype), .low = low, .high = high},
      std::move(shape), dtype);
}

Array bits(const Key& key, Shape shape) {
  const Type* type = uncommitted_type(DType::int64, std::move(shape));
  std::vector<uint32_t> words(type->elements);
  random_bits(key, type->shape, whole_block(type->shape), words.data());
  return array<int64_t>(std::vector<int64_t>(words.begin(), words.end()), type->shape);
}

}  // namespace tessera
