// Recipes: arrays that are described, not stored, until they are placed or used.
#pragma once

#include <memory>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// Makes the random numbers of an array, block by block (random/samplers.h).
class Generator {
 public:
  virtual ~Generator() = default;
  // The function that makes such an array, for errors: "normal".
  virtual const char* name() const = 0;
  // One block of an array of this global shape, contiguous, in the recipe's element type `drawn`. An element depends on
  // its global index alone, and has the same bits on every device.
  virtual at::Tensor block(const Shape& global, const IndexRanges& block, c10::Device device) const = 0;
};

// value = cast(scale * x + shift), where x is 1 for a constant, else a number that the generator makes.
struct Recipe {
  std::shared_ptr<const Generator> generator = {};  // none: a constant
  DType drawn = DType::float32;  // the element type in which numbers are drawn and, if it is floating, scaled
  double scale = 1, shift = 0;
};

Array make_recipe(const Recipe& recipe, Shape shape, DType dtype);

// The values of one block of the array, as a contiguous tensor of this device: only this block is ever held.
at::Tensor generate(const Recipe& recipe, DType dtype, const Shape& shape, const IndexRanges& block,
                    c10::Device device = c10::kCPU);

// The same recipe with another scale or element type, still without memory. can_recast: the array has the element type
// of `drawn`, so that it was not rounded by a cast before.
Array scaled(const Array& recipe, double factor);
bool can_recast(const Array& recipe);
Array recast(const Array& recipe, DType dtype);

}  // namespace tessera::detail
