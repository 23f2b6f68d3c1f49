// Blocks of two meshes, crossed.
#include "sharding/between_meshes.h"

#include <algorithm>
#include <map>
#include <optional>

namespace tessera::detail {
namespace {

struct Held {
  IndexRanges block;
  int slot;
};

// The blocks at the coordinates over `axes`, and where they are stored.
std::vector<Held> held_over(Mask axes, const Type* type) {
  std::vector<Held> all;
  for (int b = 0; b < type->mesh->count(axes); ++b) {
    int coordinates[max_axes] = {};
    unravel(type->mesh, axes, b, coordinates);
    all.push_back({block_of(type, coordinates), ravel(type->mesh, type->slots, coordinates)});
  }
  return all;
}

// The box that both hold.
std::optional<Piece> shared_box(const Held& result, const Held& operand) {
  Piece piece{result.slot, operand.slot, {}};
  for (size_t d = 0; d < result.block.size(); ++d) {
    const auto [to, to_end] = result.block[d];
    const auto [from, from_end] = operand.block[d];
    const int64_t first = std::max(to, from), count = std::min(to_end, from_end) - first;
    if (count <= 0) return std::nullopt;
    piece.sides.push_back({first - to, first - from, count, 1});
  }
  return piece;
}

std::map<int, IndexRanges> blocks_by_device(const Type* type) {
  std::map<int, IndexRanges> blocks;
  for (int s = 0; s < type->mesh->count(type->mesh->all()); ++s) {
    int coordinates[max_axes] = {};
    unravel(type->mesh, type->mesh->all(), s, coordinates);
    blocks[type->mesh->devices[s]] = block_of(type, coordinates);
  }
  return blocks;
}

int64_t overlap(const IndexRanges& a, const IndexRanges& b) {
  int64_t elements = 1;
  for (size_t d = 0; d < a.size(); ++d)
    elements *= std::max<int64_t>(0, std::min(a[d].second, b[d].second) - std::max(a[d].first, b[d].first));
  return elements;
}

}  // namespace

Pieces pieces_between_meshes(const Type* from, const Type* to) {
  Pieces pieces{.in = {from->local}, .out = to->local, .in_views = {from->local}, .out_view = to->local};
  pieces.slots_in = from->mesh->count(from->slots);
  pieces.slots_out = to->mesh->count(to->slots);
  for (const Held& result : held_over(to->slots, to))
    for (const Held& operand : held_over(from->sharded, from))
      if (auto piece = shared_box(result, operand)) pieces.forward.push_back(*std::move(piece));
  for (const Held& operand : held_over(from->slots, from))
    for (const Held& result : held_over(to->sharded, to))
      if (auto piece = shared_box(result, operand)) pieces.backward.push_back(*std::move(piece));
  return pieces;
}

int64_t bytes_to_receive(const Type* from, const Type* to) {
  const auto held = blocks_by_device(from);
  int64_t most = 0;
  for (const auto& [device, block] : blocks_by_device(to)) {
    const auto own = held.find(device);
    const int64_t there = own == held.end() ? 0 : overlap(own->second, block);
    most = std::max(most, to->bytes - there * item_size(to->dtype));
  }
  return most;
}

}  // namespace tessera::detail
