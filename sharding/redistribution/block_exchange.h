// BlockExchange: assembles each block of a result from pieces of several devices' blocks.
#pragma once

#include <memory>
#include <vector>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// Elements [start, start + count) of a result along one dimension: the elements first, first + step, ... of an operand.
struct Run {
  static constexpr int any = -1;  // value of `operand` along a dimension on which the operands are not joined
  int64_t start, count;
  int operand;
  int64_t first, step;  // step is not 0
};

// The runs of each dimension of a result; at most one dimension joins several operands. Elements outside all runs get
// the fill value.
using IndexMap = std::vector<std::vector<Run>>;

// Returns the map of a result that equals the operand.
IndexMap identity_map(const Shape& shape);

// A box of elements that a block of the result and a block of an operand share.
struct Piece {
  struct Side {
    int64_t to, from, count, step;  // `to` and `from` are offsets in the two blocks along one dimension
  };
  int out, in;  // slots; slot i of operand k is k * slots_in + i
  std::vector<Side> sides;
  int peer = -1;  // index in BlockExchange::processes of the other process that has one of the blocks; -1: none
};

// Assembles a result's blocks from its operands' blocks, and the operands' gradients from the result's.
struct BlockExchange {
  std::vector<Piece> forward, backward;  // pieces of this process's blocks
  std::vector<Piece> forward_sent, backward_sent;  // pieces sent to others, in the order of their lists
  std::vector<Shape> in;                           // local shape of each operand's blocks
  Shape out;                                       // local shape of the result's blocks
  std::vector<Shape> in_views;                     // the shapes in which Sides count their offsets
  Shape out_view;
  int slots_in = 1, slots_out = 1;
  double fill = 0;
  bool crosses = true, crosses_back = true;  // whether any process gets a piece from another; equal on all processes
  int64_t received = 0, returned = 0;        // the most elements that one device gets from others, forward and backward
  const MeshImpl* mesh = nullptr;
  AxisSet axes = 0;            // the mesh axes along which pieces are communicated
  std::vector<int> processes;  // the processes along these axes

  Tensors gather_blocks(const Tensors& operands, const Provenance& cause) const;
  Tensors scatter_blocks(const Tensors& gradients, const Provenance& cause) const;
};

// Makes the exchange from operands that all have the same sharding. A partial sum of `from` is a partial sum in `to`.
BlockExchange make_block_exchange(const std::vector<const Type*>& from, const Type* to, const IndexMap& map,
                                  double fill = 0);

// Returns the exchange of a reshape: the same elements in row-major order in another shape. Returns null if the blocks
// of the two types are not boxes of one common finer shape.
std::shared_ptr<const BlockExchange> reshape_exchange(const Type* from, const Type* to);

}  // namespace tessera::detail
