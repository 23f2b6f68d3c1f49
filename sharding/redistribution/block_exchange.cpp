// Computes the pieces of a BlockExchange by intersecting blocks.
#include "sharding/redistribution/block_exchange.h"

#include <algorithm>
#include <functional>
#include <optional>

namespace tessera::detail {
namespace {

using Side = Piece::Side;
using Range = std::pair<int64_t, int64_t>;

int64_t ceil_div(int64_t a, int64_t b) { return a >= 0 ? (a + b - 1) / b : -(-a / b); }

// Returns the elements of a run that are in block `to` of the result and in block `from` of the operand.
std::optional<Side> cross(const Run& run, const Range& to, const Range& from) {
  int64_t low = std::max<int64_t>(0, to.first - run.start), high = std::min(run.count, to.second - run.start);
  if (run.step > 0) {
    low = std::max(low, ceil_div(from.first - run.first, run.step));
    high = std::min(high, ceil_div(from.second - run.first, run.step));
  } else {
    low = std::max(low, ceil_div(run.first - from.second + 1, -run.step));
    high = std::min(high, ceil_div(run.first - from.first + 1, -run.step));
  }
  if (low >= high) return std::nullopt;
  return Side{run.start + low - to.first, run.first + low * run.step - from.first, high - low, run.step};
}

// Returns all boxes that two blocks share.
std::vector<std::vector<Side>> shared_boxes(const IndexMap& map, int operand, const IndexRanges& to,
                                            const IndexRanges& from) {
  std::vector<std::vector<Side>> boxes{{}};
  for (size_t d = 0; d < map.size(); ++d) {
    std::vector<std::vector<Side>> longer;
    for (const Run& run : map[d]) {
      if (run.operand != Run::any && run.operand != operand) continue;
      const auto side = cross(run, to[d], from[d]);
      if (!side) continue;
      for (const auto& box : boxes) {
        longer.push_back(box);
        longer.back().push_back(*side);
      }
    }
    boxes = std::move(longer);
  }
  return boxes;
}

int64_t shared_elements(const IndexMap& map, int operand, const IndexRanges& to, const IndexRanges& from) {
  int64_t all = 1;
  for (size_t d = 0; d < map.size(); ++d) {
    int64_t along = 0;
    for (const Run& run : map[d]) {
      if (run.operand != Run::any && run.operand != operand) continue;
      if (const auto side = cross(run, to[d], from[d])) along += side->count;
    }
    all *= along;
  }
  return all;
}

// Blocks as boxes in the coordinates of the index map.
struct Blocks {
  std::function<IndexRanges(const Type*, const int* device)> at;
  std::function<IndexRanges(const Type*)> whole;
};

// Intersects a device's block of `mine` with all blocks of `theirs`. The device takes each block from the holder whose
// coordinates differ only along the axes that shard `theirs`.
class Matcher {
 public:
  Matcher(const MeshImpl* mesh, AxisSet axes, const Type* mine, const Type* theirs)
      : mesh_(mesh), axes_(axes), mine_(mine), theirs_(theirs) {}

  // Calls visit(my block, their block, their slot, the process that has it).
  template <class Visit>
  void at(const int* device, const Blocks& blocks, Visit visit) const {
    const IndexRanges here = blocks.at(mine_, device);
    for (int b = 0; b < mesh_->count(theirs_->sharded); ++b) {
      int other[max_axes];
      std::copy_n(device, max_axes, other);
      unravel_place(mesh_, theirs_->sharded, b, other);
      visit(here, blocks.at(theirs_, other), ravel(mesh_, theirs_->slots, other), process_along(mesh_, axes_, other));
    }
  }

 private:
  const MeshImpl* mesh_;
  AxisSet axes_;
  const Type *mine_, *theirs_;
};

class Maker {
 public:
  Maker(const std::vector<const Type*>& from, const Type* to, const IndexMap& map, const Blocks& block)
      : from_(from), to_(to), map_(map), block_(block), mesh_(to->mesh) {
    pieces_.out = pieces_.out_view = to->local;
    pieces_.slots_in = mesh_->slots(from[0]->slots);
    pieces_.slots_out = mesh_->slots(to->slots);
    pieces_.mesh = mesh_;
    pieces_.axes = from[0]->sharded | to->sharded;
    pieces_.processes = processes_along(mesh_, pieces_.axes);
    for (const Type* type : from) pieces_.in.push_back(type->local);
    pieces_.in_views = pieces_.in;
    pieces_.crosses = pieces_.crosses_back = false;
  }

  BlockExchange make() {
    for (int p = 0; p < static_cast<int>(pieces_.processes.size()); ++p) {
      for (int s = 0; s < pieces_.slots_out; ++s) collect_forward(p, s);
      for (int s = 0; s < pieces_.slots_in; ++s) collect_backward(p, s);
    }
    count_traffic();
    return std::move(pieces_);
  }

 private:
  Coordinates device_of(int process, AxisSet slots, int slot) const {
    Coordinates device(mesh_);
    unravel(mesh_, slots, slot, device);
    move_to_process(mesh_, pieces_.axes, process, device);
    return device;
  }

  // Adds a piece that `process` needs and `holder` has, if this process is one of the two.
  void add(std::vector<Piece>& wanted, std::vector<Piece>& sent, int process, int holder, Piece piece) {
    if (process != holder) (&wanted == &pieces_.forward ? pieces_.crosses : pieces_.crosses_back) = true;
    const int self = process_along(mesh_, pieces_.axes, Coordinates(mesh_));
    if (process == self) {
      piece.peer = holder == self ? -1 : holder;
      wanted.push_back(std::move(piece));
    } else if (holder == self) {
      piece.peer = process;
      sent.push_back(std::move(piece));
    }
  }

  void collect_forward(int process, int slot) {
    const Coordinates device = device_of(process, to_->slots, slot);
    for (int k = 0; k < static_cast<int>(from_.size()); ++k)
      Matcher(mesh_, pieces_.axes, to_, from_[k])
          .at(device, block_, [&](const auto& mine, const auto& theirs, int in, int holder) {
            for (auto& box : shared_boxes(map_, k, mine, theirs))
              add(pieces_.forward, pieces_.forward_sent, process, holder,
                  {slot, k * pieces_.slots_in + in, std::move(box)});
          });
  }

  void collect_backward(int process, int slot) {
    const Coordinates device = device_of(process, from_[0]->slots, slot);
    for (int k = 0; k < static_cast<int>(from_.size()); ++k)
      Matcher(mesh_, pieces_.axes, from_[k], to_)
          .at(device, block_, [&](const auto& mine, const auto& theirs, int out, int holder) {
            for (auto& box : shared_boxes(map_, k, theirs, mine))
              add(pieces_.backward, pieces_.backward_sent, process, holder,
                  {out, k * pieces_.slots_in + slot, std::move(box)});
          });
  }

  // Counts the elements that a device needs, without those that it has.
  void count_traffic() {
    const AxisSet cut = from_[0]->sharded | to_->sharded;
    for (int d = 0; d < mesh_->count(cut); ++d) {
      int device[max_axes] = {};
      unravel_place(mesh_, cut, d, device);
      const IndexRanges result = block_.at(to_, device), all = block_.whole(to_);
      int64_t received = 0, returned = 0;
      for (size_t k = 0; k < from_.size(); ++k) {
        const IndexRanges own = block_.at(from_[k], device);
        const int64_t here = shared_elements(map_, static_cast<int>(k), result, own);
        received += shared_elements(map_, static_cast<int>(k), result, block_.whole(from_[k])) - here;
        returned += shared_elements(map_, static_cast<int>(k), all, own) - here;
      }
      pieces_.received = std::max(pieces_.received, received);
      pieces_.returned = std::max(pieces_.returned, returned);
    }
  }

  const std::vector<const Type*>& from_;
  const Type* to_;
  const IndexMap& map_;
  const Blocks& block_;
  const MeshImpl* mesh_;
  BlockExchange pieces_;
};

// ---- reshapes

// Factors into which two shapes with the same elements can be split. In both shapes, every dimension and every block of
// a dimension is a run of consecutive factors.
struct Refinement {
  Shape factors;

  // Returns nullopt if there are no common factors.
  static std::optional<Refinement> of(const Type* a, const Type* b) {
    std::vector<int64_t> strides{1};
    for (const Type* type : {a, b}) {
      int64_t inner = 1;
      for (size_t d = type->shape.size(); d-- > 0;) {
        strides.push_back(inner * type->local[d]);
        inner *= type->shape[d];
        strides.push_back(inner);
      }
    }
    std::sort(strides.begin(), strides.end());
    strides.erase(std::unique(strides.begin(), strides.end()), strides.end());
    Refinement r;
    for (size_t i = strides.size() - 1; i > 0; --i) {
      if (strides[i] % strides[i - 1]) return std::nullopt;
      r.factors.push_back(strides[i] / strides[i - 1]);
    }
    return r;
  }

  // Returns a block in terms of the factors: each factor is complete, or a single index of it.
  IndexRanges block(const Type* type, const int* coordinates) const {
    const IndexRanges ranges = block_of(type, coordinates);
    IndexRanges result;
    size_t d = 0;
    int64_t left = factors.empty() ? 1 : type->shape.empty() ? 1 : type->shape[0];
    for (const int64_t factor : factors) {
      while (left == 1 && d + 1 < type->shape.size()) left = type->shape[++d];
      left /= factor;  // now the stride of the factor within the dimension
      const int64_t size = ranges[d].second - ranges[d].first, index = ranges[d].first / left % factor;
      if (left >= size)
        result.push_back({index, index + 1});
      else
        result.push_back({0, factor});
    }
    return result;
  }
};

}  // namespace

IndexMap identity_map(const Shape& shape) {
  IndexMap map;
  for (int64_t size : shape) map.push_back({{0, size, Run::any, 0, 1}});
  return map;
}

BlockExchange make_block_exchange(const std::vector<const Type*>& from, const Type* to, const IndexMap& map,
                                  double fill) {
  const Blocks blocks{[](const Type* type, const int* device) { return block_of(type, device); },
                      [](const Type* type) { return whole_block(type->shape); }};
  BlockExchange pieces = Maker(from, to, map, blocks).make();
  pieces.fill = fill;
  return pieces;
}

std::shared_ptr<const BlockExchange> reshape_exchange(const Type* from, const Type* to) {
  if (from->padded || to->padded) return nullptr;
  const auto refinement = Refinement::of(from, to);
  if (!refinement) return nullptr;
  const Blocks blocks{[&](const Type* type, const int* device) { return refinement->block(type, device); },
                      [&](const Type*) { return whole_block(refinement->factors); }};
  BlockExchange pieces = Maker({from}, to, identity_map(refinement->factors), blocks).make();
  const int origin[max_axes] = {};
  pieces.in_views = {sizes_of(refinement->block(from, origin))};
  pieces.out_view = sizes_of(refinement->block(to, origin));
  return std::make_shared<const BlockExchange>(std::move(pieces));
}

}  // namespace tessera::detail
