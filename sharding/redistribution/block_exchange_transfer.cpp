// Assembles blocks from pieces and splits them into pieces, within this process and between processes.
#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "sharding/redistribution/block_exchange.h"
#include "sharding/runtime/process_group.h"

namespace tessera::detail {
namespace {

using Side = Piece::Side;

int64_t elements(const std::vector<Side>& box) {
  return std::accumulate(box.begin(), box.end(), int64_t{1}, [](int64_t n, const Side& s) { return n * s.count; });
}

at::Tensor result_part(at::Tensor block, const Piece& piece) {
  for (size_t d = 0; d < piece.sides.size(); ++d)
    if (const Side& s = piece.sides[d]; s.count != block.size(d)) block = block.narrow(d, s.to, s.count);
  return block;
}

// Returns the operand's elements in ascending order; reversed() flips the dimensions that run in descending order.
at::Tensor operand_part(at::Tensor block, const Piece& piece) {
  for (size_t d = 0; d < piece.sides.size(); ++d) {
    const Side& s = piece.sides[d];
    const int64_t last = s.from + (s.count - 1) * s.step;
    const auto [low, high] = std::minmax(s.from, last);
    if (low != 0 || high + 1 != block.size(d) || std::abs(s.step) != 1)
      block = block.slice(d, low, high + 1, std::abs(s.step));
  }
  return block;
}

at::Tensor reversed(const at::Tensor& part, const Piece& piece) {
  c10::SmallVector<int64_t, 5> dims;
  for (size_t d = 0; d < piece.sides.size(); ++d)
    if (piece.sides[d].step < 0) dims.push_back(static_cast<int64_t>(d));
  return dims.empty() ? part : part.flip(dims);
}

bool covers(const Piece& piece, const Shape& block) {
  for (size_t d = 0; d < block.size(); ++d)
    if (piece.sides[d].count != block[d]) return false;
  return true;
}

bool is_whole(const Piece& piece, const Shape& block) {
  return covers(piece, block) &&
         std::all_of(piece.sides.begin(), piece.sides.end(), [](const Side& s) { return s.from == 0 && s.step == 1; });
}

// Returns the wanted pieces that other processes send, in their order; undefined tensors for pieces of this process.
// `part` makes the data of a piece. All pieces for one process are one message. `crosses`: whether any process sends to
// another.
template <class Part>
std::vector<at::Tensor> parts_from_others(const BlockExchange& pieces, bool crosses, const std::vector<Piece>& wanted,
                                          const std::vector<Piece>& sent, const at::Tensor& like,
                                          const Provenance& cause, Part part) {
  std::vector<at::Tensor> parts(wanted.size());
  std::map<int, std::vector<at::Tensor>> outgoing;
  std::map<int, int64_t> incoming;
  for (const Piece& piece : sent) outgoing[piece.peer].push_back(part(piece).reshape({-1}));
  for (const Piece& piece : wanted)
    if (piece.peer >= 0) incoming[piece.peer] += elements(piece.sides);
  if (pieces.processes.size() <= 1 || !crosses) return parts;
  std::vector<Message> sends, receives;
  for (const auto& [peer, tensors] : outgoing) sends.push_back({peer, at::cat(tensors)});
  for (const auto& [peer, size] : incoming) receives.push_back({peer, like.new_empty({size})});
  process_group(pieces.processes, like.device())
      .exchange(sends, receives, {cause.operation, cause.where, pieces.mesh->kept_names(pieces.axes)})
      ->wait();
  std::map<int, int64_t> read;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Piece& piece = wanted[i];
    if (piece.peer < 0) continue;
    std::vector<int64_t> sizes;
    for (const Side& s : piece.sides) sizes.push_back(s.count);
    const auto message =
        std::find_if(receives.begin(), receives.end(), [&](const auto& m) { return m.peer == piece.peer; });
    parts[i] = message->tensor.narrow(0, read[piece.peer], elements(piece.sides)).view(sizes);
    read[piece.peer] += elements(piece.sides);
  }
  return parts;
}

}  // namespace

Tensors BlockExchange::gather_blocks(const Tensors& operands, const Provenance& cause) const {
  Tensors result(slots_out);
  const auto here = [&](const Piece& piece) {
    return reversed(operand_part(operands[piece.in].reshape(in_views[piece.in / slots_in]), piece), piece);
  };
  const std::vector<at::Tensor> from_others =
      parts_from_others(*this, crosses, forward, forward_sent, operands[0], cause, here);
  const auto part = [&](size_t p) { return forward[p].peer < 0 ? here(forward[p]) : from_others[p]; };
  size_t i = 0;
  for (int s = 0; s < slots_out; ++s) {
    size_t end = i;
    int64_t covered = 0;
    for (; end < forward.size() && forward[end].out == s; ++end) covered += elements(forward[end].sides);
    if (end == i + 1 && covers(forward[i], out_view)) {
      result[s] = part(i);
    } else {
      const at::Tensor& like = operands[0];
      const int64_t size = c10::multiply_integers(out_view);
      result[s] = covered == size ? like.new_empty(out_view) : like.new_full(out_view, fill);
      for (size_t p = i; p < end; ++p) result_part(result[s], forward[p]).copy_(part(p));
    }
    result[s] = result[s].reshape(out);
    i = end;
  }
  return result;
}

Tensors BlockExchange::scatter_blocks(const Tensors& gradients, const Provenance& cause) const {
  const auto here = [&](const Piece& piece) {
    return reversed(result_part(gradients[piece.out].reshape(out_view), piece), piece);
  };
  const std::vector<at::Tensor> from_others =
      parts_from_others(*this, crosses_back, backward, backward_sent, gradients[0], cause, here);
  Tensors result(slots_in * in.size());
  std::vector<bool> shared(result.size());  // true: the tensor is shared with the result's gradient
  for (size_t i = 0; i < backward.size(); ++i) {
    const Piece& piece = backward[i];
    const at::Tensor part = piece.peer < 0 ? here(piece) : from_others[i];
    const Shape& view = in_views[piece.in / slots_in];
    at::Tensor& sum = result[piece.in];
    if (!sum.defined() && is_whole(piece, view)) {
      sum = part;
      shared[piece.in] = true;
      continue;
    }
    if (!sum.defined()) sum = part.new_zeros(view);
    if (shared[piece.in]) sum = sum.clone();
    shared[piece.in] = false;
    operand_part(sum, piece).add_(part);
  }
  for (size_t i = 0; i < result.size(); ++i) {
    const size_t k = i / slots_in;
    result[i] = result[i].defined() ? result[i].reshape(in[k]) : gradients[0].new_zeros(in[k]);
  }
  return result;
}

}  // namespace tessera::detail
