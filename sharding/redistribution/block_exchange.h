// Pieces: which parts of which devices' blocks make up a block, where more moves than one collective can say.
#pragma once

#include <memory>
#include <vector>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// `count` elements of a result along one dim, from `start` on: the elements first, first + step, ... of an operand.
struct Run {
  static constexpr int any = -1;  // of a dim along which the operands are not joined
  int64_t start, count;
  int operand;
  int64_t first, step;  // step is not 0
};

// The runs of each dim of a result, of which at most one joins several operands. What no run covers is filled.
using IndexMap = std::vector<std::vector<Run>>;

// The map of a result that is the operand itself.
IndexMap identity_map(const Shape& shape);

// A box that a block of the result and a block of an operand share.
struct Piece {
  struct Side {
    int64_t to, from, count, step;  // places inside the two blocks, along one dim
  };
  int out, in;  // slots; slot i of operand k is k * slots_in + i
  std::vector<Side> sides;
  int peer = -1;  // the other process, by its place among Pieces::processes, that has the one block or the other
};

// How the blocks of a result are made of those of its operands, and the gradients of these of the result's.
struct BlockExchange {
  std::vector<Piece> forward, backward;            // of this process's blocks
  std::vector<Piece> forward_sent, backward_sent;  // of its own to other processes' blocks, in the order of their lists
  std::vector<Shape> in;                           // local shape of each operand's blocks
  Shape out;                                       // and of the result's
  std::vector<Shape> in_views;                     // the shapes in which the boxes are counted
  Shape out_view;
  int slots_in = 1, slots_out = 1;
  double fill = 0;
  bool crosses = true, crosses_back = true;  // whether any process gets a piece from another: known to all of them
  int64_t received = 0, returned = 0;        // elements that one device gets from others, at most: forward and backward
  const MeshImpl* mesh = nullptr;
  AxisSet axes = 0;            // over which the pieces move
  std::vector<int> processes;  // that lie along them

  Tensors assemble(const Tensors& operands, const Cause& cause) const;
  Tensors take_apart(const Tensors& gradients, const Cause& cause) const;
};

// The operands' types `from` are placed alike. Pending sums of `from` are pending in `to`.
BlockExchange make_block_exchange(const std::vector<const Type*>& from, const Type* to, const IndexMap& map,
                                  double fill = 0);

// The same elements in row-major order under another shape. Null where the blocks of the two are no boxes of a common
// finer shape.
std::shared_ptr<const BlockExchange> reshape_exchange(const Type* from, const Type* to);

}  // namespace tessera::detail
