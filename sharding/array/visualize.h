// visualize_sharding: draws which devices store which block of an array.
#pragma once

#include <string>

#include "sharding/array/array.h"
#include "sharding/placement/named_sharding.h"

namespace tessera {

struct VisualizeOptions {
  enum class Color {
    automatic,  // color if standard output is a terminal and the environment variable NO_COLOR is not set
    always,
    never,
  };
  int width = 80;  // characters in the widest line
  Color color = Color::automatic;
};

// Returns a drawing with one box per block, which lists the devices that store the block. Layout and sizes are the same
// as in jax.debug.visualize_array_sharding. An array of one dimension is a row, of two dimensions a grid, and a scalar
// one box. With more dimensions, the last two are drawn once for each block of the leading dimensions, under its range:
// [0:2, 4:8, :, :]. In color, blocks are areas without borders.
//   std::cout << visualize_sharding(x);
//   ┌────────────┬────────────┐
//   │  CPU 0,1   │  CPU 2,3   │
//   └────────────┴────────────┘
// Errors
//   device_mismatch: an array that is not placed on a mesh
//   the errors of NamedSharding: a shape that the sharding does not fit
[[nodiscard]] std::string visualize_sharding(const Shape& shape, const NamedSharding& sharding,
                                             const VisualizeOptions& options = {});
[[nodiscard]] std::string visualize_sharding(const Array& x, const VisualizeOptions& options = {});

}  // namespace tessera
