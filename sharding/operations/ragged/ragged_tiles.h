// Rows sorted by group into tiles of one size each, by arithmetic where the sizes lie: the host does not read them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "sharding/operations/operand.h"

namespace tessera::detail {

// Each tile has `size` places for rows of one group, so there are as many whatever the sizes say. A group's last tile
// is filled up with zeros: of n rows in k groups there are no more than 2k tiles, with less than 2n + k places.
struct Tiles {
  int64_t size = 1;
  at::Tensor order;   // by place, the row there; the number of all rows where there is none
  at::Tensor place;   // by row, its place; the number of all places where it is in none of these groups
  at::Tensor groups;  // by tile
};

// Of the groups from `first` on that have one of `kernels` here. sizes (matrices, groups), of an accelerator: for each
// of the matrices that lie one below the other, of so many rows each. A size below zero, or more rows than there are,
// is an error (invalid_argument) of the next read.
Tiles tiles_of(const at::Tensor& sizes, int64_t rows, int64_t first, int64_t kernels);

// Of rows in the places of these tiles, each by its group's kernel. At any time there are copies of no more than all
// kernels; the backward pass makes them anew.
at::Tensor product_of_tiles(const Tiles& tiles, const at::Tensor& rows, const at::Tensor& kernels);

}  // namespace tessera::detail

namespace tessera {

// ragged_dot(silu(ragged_dot(x, gate, sizes)) * ragged_dot(x, up, sizes), down, sizes), with gate and up (groups, in,
// hidden) and down (groups, hidden, out) of x's element type. As one operation it needs no sum before its end: where
// groups are sharded each row is one device's from the first product to the last, and the result is a pending sum, as
// it is where hidden is sharded. Errors: those of ragged_dot.
Array ragged_mlp(Operand x, const Array& gate, const Array& up, const Array& down, const Array& sizes);

}  // namespace tessera
