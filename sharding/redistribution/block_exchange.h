// BlockExchange: which pieces of which devices' blocks make up each block of a result, where no one collective can.
#pragma once

#include <memory>
#include <vector>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// `count` elements of a result along one dim, from `start` on: the elements first, first + step, ... of an operand.
struct Run {
  static constexpr int any = -1;  // `operand`, along a dim on which the operands are not joined
  int64_t start, count;
  int operand;
  int64_t first, step;  // step is not 0
};

// The runs of each dim of a result; at most one dim joins several operands. What no run covers gets the fill value.
using IndexMap = std::vector<std::vector<Run>>;

// The map of a result that is the operand itself.
IndexMap identity_map(const Shape& shape);

// A box of elements that a block of the result and a block of an operand have in common.
struct Piece {
  struct Side {
    int64_t to, from, count, step;  // `to` and `from` are places inside the two blocks, along one dim
  };
  int out, in;  // slots; slot i of operand k is k * slots_in + i
  std::vector<Side> sides;
  int peer = -1;  // index in BlockExchange::processes of the other process that has one of the blocks; -1: none
};

// How a result's blocks are assembled from its operands' blocks, and the operands' gradients from the result's.
struct BlockExchange {
  std::vector<Piece> forward, backward;            // that make up this process's blocks
  std::vector<Piece> forward_sent, backward_sent;  // from its blocks to other processes', in the order of their lists
  std::vector<Shape> in;                           // local shape of each operand's blocks
  Shape out;                                       // and of the result's
  std::vector<Shape> in_views;                     // the views of the blocks in which Sides count their places
  Shape out_view;
  int slots_in = 1, slots_out = 1;
  double fill = 0;
  bool crosses = true, crosses_back = true;  // whether any process gets a piece from another; known to all
  int64_t received = 0, returned = 0;        // elements that one device gets from others, at most: forward and backward
  const MeshImpl* mesh = nullptr;
  AxisSet axes = 0;            // the mesh axes along which the pieces move
  std::vector<int> processes;  // the processes along them

  Tensors assemble(const Tensors& operands, const Provenance& cause) const;
  Tensors take_apart(const Tensors& gradients, const Provenance& cause) const;
};

// All operands have the same placement. A pending sum of `from` is pending in `to`.
BlockExchange make_block_exchange(const std::vector<const Type*>& from, const Type* to, const IndexMap& map,
                                  double fill = 0);

// The exchange of a reshape: the same elements in row-major order under another shape. Null if the blocks of the two
// types are not boxes of one common finer shape.
std::shared_ptr<const BlockExchange> reshape_exchange(const Type* from, const Type* to);

}  // namespace tessera::detail
