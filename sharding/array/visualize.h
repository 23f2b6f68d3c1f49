// visualize_sharding: a drawing of which devices hold which part of an array.
#pragma once

#include <string>

#include "sharding/array/array.h"
#include "sharding/placement/named_sharding.h"

namespace tessera {

struct VisualizeOptions {
  enum class Color {
    automatic,  // if the standard output is a terminal, and the environment variable NO_COLOR is not set
    always,
    never,
  };
  int width = 80;  // of the widest line, in characters
  Color color = Color::automatic;
};

// A text with a box for each block: it stands where the block lies in the array, and names the devices that hold the
// block. Drawn as by jax.debug.visualize_array_sharding, with the same sizes: one dim as a row, two as a grid. A scalar
// is one box; of more dims, the last two are drawn once for each block of the leading dims, under its range: [0:2, 4:8,
// :, :]. In colour, the blocks are areas without lines.
//   std::cout << visualize_sharding(x);
//   ┌────────────┬────────────┐
//   │  CPU 0,1   │  CPU 2,3   │
//   └────────────┴────────────┘
// Errors: an array that is not placed (device_mismatch); a shape that the sharding does not fit, as NamedSharding's.
[[nodiscard]] std::string visualize_sharding(const Shape& shape, const NamedSharding& sharding,
                                             const VisualizeOptions& options = {});
[[nodiscard]] std::string visualize_sharding(const Array& x, const VisualizeOptions& options = {});

}  // namespace tessera
