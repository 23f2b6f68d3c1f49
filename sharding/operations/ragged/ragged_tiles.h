// Rows sorted by group on the device, in tiles of equal size or for grouped products. The host does not read the sizes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "sharding/operations/operand.h"

namespace tessera::detail {

// Rows sorted into tiles. All rows of a tile belong to one group; a group's last tile is padded with zeros. There are
// always as many tiles as the worst group sizes need, because the sizes are on the accelerator: for n rows in k groups
// at most 2k tiles, with fewer than 2n + k places.
//
// For grouped products, tiles have one place: a group has as many places as rows, and an empty group has one place of
// zeros. Products and gradients have arbitrary values, also NaN, in the places after the last group. No row reads them.
struct Tiles {
  int64_t size = 1;
  at::Tensor order;   // for each place, its row; the number of all rows for an empty place
  at::Tensor place;   // for each row, its place; the number of all places for a row outside these groups
  at::Tensor groups;  // for each tile, its group; undefined for grouped products
  at::Tensor ends;    // for each group, the place after its last one, as int32; undefined unless for grouped products
};

// Returns whether grouped products can multiply `rows` rows of x's device and element type by all these kernels
// without a wait of the host. Each kernel matrix must have dimensions that are multiples of 8.
bool has_grouped_products(const at::Tensor& x, int64_t rows, at::TensorList kernels);

// Returns the tiles of the `kernels` groups from `first` on. `sizes` (matrices, groups) is on an accelerator and holds
// the group sizes of each stacked matrix; each matrix has the same number of rows. A negative size, or more rows than
// exist, is an Error (invalid_argument) at the next read.
Tiles tiles_of(const at::Tensor& sizes, int64_t rows, int64_t first, int64_t kernels, bool grouped);

// Returns the rows in the places of these tiles, each multiplied by its group's kernel. Without grouped products, the
// copies of kernels take at any time at most the memory of all kernels; the backward pass makes them again.
at::Tensor product_of_tiles(const Tiles& tiles, const at::Tensor& rows, const at::Tensor& kernels);

}  // namespace tessera::detail

namespace tessera {

struct RaggedMlpOptions {
  Array gate_bias = {}, up_bias = {};  // (groups, hidden): added to the products; both or none
  // Unless limit is 0, (clip(up, -limit, limit) + 1) * g * sigmoid(alpha g) with g = min(gate, limit) replaces
  // silu(gate) * up.
  double limit = 0, alpha = 1;
};

// Computes ragged_dot(silu(ragged_dot(x, gate, sizes)) * ragged_dot(x, up, sizes), down, sizes), with gate and up
// (groups, in, hidden) and down (groups, hidden, out) of x's element type. As one operation it needs no sum before its
// end: with sharded groups, one device computes each row from the first product to the last, and the result is a
// partial sum. With a sharded hidden dimension the result is a partial sum too. Errors: those of ragged_dot.
Array ragged_mlp(Operand x, const Array& gate, const Array& up, const Array& down, const Array& sizes,
                 const RaggedMlpOptions& options = {});

}  // namespace tessera
