// Recipes: arrays that are described, not stored, until they are placed or used.
#pragma once

#include "sharding/array_impl.h"
#include "sharding/key.h"

namespace tessera::detail {

enum class Initializer : uint8_t {
  constant,
  uniform,
  normal,
  truncated_normal,
  exponential,
  gumbel,
  bernoulli,  // uniform < high
  integers,
  bits,
};

// value = cast(scale * x + shift), x a constant 1 or a random number of the key and the global element index.
struct Recipe {
  Initializer initializer = Initializer::constant;
  Key key;
  DType drawn = DType::float32;  // the element type in which random numbers are drawn and, floating, scaled
  double low = 0, high = 1;      // of uniform, truncated_normal and bernoulli
  int64_t first = 0;             // of integers: first + r, 0 <= r < span
  uint64_t span = 0;
  double scale = 1, shift = 0;
};

Array make_recipe(const Recipe& recipe, Shape shape, DType dtype);

// The values of one block of the array, as a contiguous tensor: only this block is ever held.
at::Tensor generate(const Recipe& recipe, DType dtype, const Shape& shape, const IndexRanges& block);

// The same recipe with another scale or element type: no memory yet. A recipe that was cast already is recast only if
// nothing was rounded.
Array scaled(const Array& recipe, double factor);
bool can_recast(const Array& recipe);
Array recast(const Array& recipe, DType dtype);

}  // namespace tessera::detail
