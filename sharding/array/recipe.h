// Lazy initializers (recipes): arrays that are described, not stored, until they are placed or used.
#pragma once

#include <memory>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// Generates the random numbers of an array block by block (random/random.cpp).
class Generator {
 public:
  virtual ~Generator() = default;
  // Returns the name of the public function that makes such an array, for error messages: "normal".
  virtual const char* name() const = 0;
  // Returns one block of an array of this global shape, contiguous, in the recipe's element type `drawn`. Each element
  // depends only on its global index, and has the same bits on every device.
  virtual at::Tensor block(const Shape& global, const IndexRanges& block, c10::Device device) const = 0;
};

// A lazy initializer: value = cast(scale * x + shift), where x is 1 for a constant, else a number from the generator.
struct Recipe {
  std::shared_ptr<const Generator> generator = {};  // null: a constant
  DType drawn = DType::float32;  // the element type in which numbers are drawn and, if floating, scaled
  double scale = 1, shift = 0;
};

Array make_recipe(const Recipe& recipe, Shape shape, DType dtype);

// Returns the values of one block of the array, as a contiguous tensor on this device. Allocates only this block.
at::Tensor generate(const Recipe& recipe, DType dtype, const Shape& shape, const IndexRanges& block,
                    c10::Device device = c10::kCPU);

// Rethrows the exception that is handled: a failed allocation as the Error (out_of_memory) of this block.
[[noreturn]] void rethrow_failed_block(const std::exception& error, DType dtype, const Shape& sizes,
                                       c10::Device device = c10::kCPU);

// Return the same recipe with another scale or element type, still without memory. can_recast returns whether the
// array's element type is `drawn`, so that no cast has rounded it before.
Array scaled(const Array& recipe, double factor);
bool can_recast(const Array& recipe);
Array recast(const Array& recipe, DType dtype);

}  // namespace tessera::detail
