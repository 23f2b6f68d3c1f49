// Generates blocks of lazy initializers: constants, and random numbers that are scaled and cast.
#include "sharding/array/recipe.h"

#include <ATen/ops/full.h>
#include <fmt/ranges.h>

#include <vector>

#include "sharding/array/out_of_memory.h"
#include "sharding/placement/element_value.h"

namespace tessera {
namespace detail {
Array make_recipe(const Recipe& recipe, Shape shape, DType dtype) {
  ArrayPtr made = make_array(
      intern({.dtype = dtype, .shape = std::move(shape)}, recipe.generator ? recipe.generator->name() : "full"), 0, {});
  made->detail().recipe = std::make_shared<const Recipe>(recipe);
  made->state = ArrayState::lazy;
  return Array(std::move(made));
}

void rethrow_failed_block(const std::exception& error, DType dtype, const Shape& sizes, c10::Device device) {
  check_allocation(error, "place", {}, fmt::format("for a block of {}[{}]", name_of(dtype), fmt::join(sizes, ",")),
                   device);
  throw;
}

at::Tensor generate(const Recipe& recipe, DType dtype, const Shape& shape, const IndexRanges& block,
                    c10::Device device) try {
  const auto type = scalar_type(dtype);
  if (!recipe.generator)
    return at::full(sizes_of(block), element_value("full", recipe.scale + recipe.shift, recipe.drawn),
                    at::TensorOptions(scalar_type(recipe.drawn)).device(device))
        .to(type);
  at::Tensor values = recipe.generator->block(shape, block, device);
  if (!is_floating(recipe.drawn)) values = values.to(type);
  if (recipe.scale != 1) values.mul_(recipe.scale);
  if (recipe.shift != 0) values.add_(recipe.shift);
  return values.to(type);
} catch (const std::exception& error) {
  rethrow_failed_block(error, dtype, sizes_of(block), device);
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
