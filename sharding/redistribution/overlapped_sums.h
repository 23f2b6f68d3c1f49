// Sums of activations over processes beside what is computed meanwhile: GradientOptions::overlap_sums.
#pragma once

#include <memory>
#include <optional>

#include "sharding/array/later_product.h"
#include "sharding/redistribution/resharding.h"

namespace tessera::detail {

// Whether the tape of this thread asks for it, on a mesh of several processes of which each is one device.
bool overlaps_sums(const MeshImpl* mesh);

// The way back of a conversion, if it is one sum over processes: begun as soon as the gradient is whole, and awaited
// when it is the conversion's turn. What has a turn in between is computed meanwhile.
class SumBack {
 public:
  explicit SumBack(std::shared_ptr<const Resharding> way) : way_(std::move(way)) {}
  // Null if this is no such sum of an activation under such a tape, which knows it from then on.
  static std::shared_ptr<SumBack> of(const ArrayImpl& a, const std::shared_ptr<const Resharding>& way);

  DType gradients() const { return way_->gradients; }  // their element type
  void begin(const Tensors& gradients);
  Tensors finish(Tensors gradients);
  // The tape is closed: what was begun is given up.
  void abandon() { begun_.reset(); }

 private:
  const std::shared_ptr<const Resharding> way_;
  std::optional<SumWork> begun_;
};

// A product that was a pending sum, as its operands' function in the graph, and the sum, outside of it.
struct SummedProduct {
  Tensors pending, sum;
};
// By `way`: the sum of the first half of its rows begins before the second half is computed. None, and nothing is
// done, if that is no sum over processes, or one of few elements, or it is watched over.
std::optional<SummedProduct> summed_in_halves(const LaterProduct& product, const Resharding& way);

}  // namespace tessera::detail
