// The step between two meshes over the same devices: each device gets its block from a device that holds it.
#include <algorithm>
#include <map>
#include <optional>

#include "sharding/redistribution/step.h"

namespace tessera::detail {
namespace {

// A tensor of a process: its slot, and the block that it holds with the block's number over the sharding axes.
struct Held {
  int process, slot, number;
  IndexRanges block;
};

// Returns the tensors of all processes, sorted by process and slot.
std::vector<Held> tensors_of(const Type* type) {
  const MeshImpl* mesh = type->mesh;
  std::map<std::pair<int, int>, Held> all;
  for (int place = 0; place < mesh->count(mesh->all()); ++place) {
    int coordinates[max_axes] = {};
    unravel_place(mesh, mesh->all(), place, coordinates);
    const int process = mesh->process_of(place), slot = ravel(mesh, type->slots, coordinates);
    all.try_emplace({process, slot},
                    Held{process, slot, ravel_place(mesh, type->sharded, coordinates), block_of(type, coordinates)});
  }
  std::vector<Held> tensors;
  for (auto& [where, held] : all) tensors.push_back(std::move(held));
  return tensors;
}

// Returns for each block the tensor from which `process` takes it: its own, or else the first process's.
std::vector<const Held*> holders_for(int process, const Type* type, const std::vector<Held>& tensors) {
  std::vector<const Held*> holders(type->mesh->count(type->sharded));
  for (const Held& held : tensors) {
    const Held*& holder = holders[held.number];
    if (!holder || (holder->process != process && held.process == process)) holder = &held;
  }
  return holders;
}

// Returns the box that both tensors hold.
std::optional<Piece> shared_box(const Held& result, const Held& operand) {
  Piece piece{.out = result.slot, .in = operand.slot, .sides = {}};
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
    unravel_place(type->mesh, type->mesh->all(), s, coordinates);
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

// Collects box(mine, theirs) for every tensor of `mine` and the blocks of `theirs` that it may need. Skips a pair if
// this process, which is one of `members`, has neither.
template <class Box>
void collect(const Type* mine, const Type* theirs, const std::vector<int>& members, std::vector<Piece>& wanted,
             std::vector<Piece>& sent, Box box) {
  const int self = mine->mesh->process;
  const std::vector<Held> all = tensors_of(mine), others = tensors_of(theirs);
  for (const Held& held : all)
    for (const Held* holder : holders_for(held.process, theirs, others)) {
      if (held.process != self && holder->process != self) continue;
      std::optional<Piece> piece = box(held, *holder);
      if (!piece || (held.process != self && holder->process == held.process)) continue;
      const int other = held.process == self ? holder->process : held.process;
      if (other != self)
        piece->peer = static_cast<int>(std::lower_bound(members.begin(), members.end(), other) - members.begin());
      (held.process == self ? wanted : sent).push_back(*std::move(piece));
    }
}

// Returns the largest number of elements that one device lacks of its block.
int64_t elements_to_receive(const Type* from, const Type* to) {
  const auto held = blocks_by_device(from);
  int64_t most = 0;
  for (const auto& [device, block] : blocks_by_device(to)) {
    const auto own = held.find(device);
    most = std::max(most, overlap(block, block) - (own == held.end() ? 0 : overlap(own->second, block)));
  }
  return most;
}

BlockExchange exchange_between(const Type* from, const Type* to) {
  BlockExchange exchange{.in = {from->local}, .out = to->local, .in_views = {from->local}, .out_view = to->local};
  exchange.slots_in = from->mesh->slots(from->slots);
  exchange.slots_out = to->mesh->slots(to->slots);
  exchange.received = elements_to_receive(from, to);
  exchange.returned = elements_to_receive(to, from);
  exchange.mesh = to->mesh;
  exchange.axes = to->mesh->all();
  if (to->mesh->abstract) return exchange;  // an abstract mesh has no elements to exchange
  exchange.processes = to->mesh->members();
  collect(to, from, exchange.processes, exchange.forward, exchange.forward_sent, shared_box);
  collect(from, to, exchange.processes, exchange.backward, exchange.backward_sent,
          [](const Held& operand, const Held& result) { return shared_box(result, operand); });
  return exchange;
}

}  // namespace

Step step_between_meshes(const Type* from, const Type* to) {
  Step step = exchange_step(from, to, std::make_shared<const BlockExchange>(exchange_between(from, to)));
  step.mesh_before = from->mesh;
  return step;
}

}  // namespace tessera::detail
