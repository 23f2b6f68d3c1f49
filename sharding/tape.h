// Tape: one forward pass whose gradient is wanted; the leaves of its parameters live and die with it.
#pragma once

#include <memory>
#include <optional>
#include <source_location>
#include <vector>

#include "sharding/array.h"
#include "sharding/dtype.h"

namespace tessera {

namespace detail {
struct TapeState;
}

// How gradients are computed.
struct GradientOptions {
  // A weight that is gathered at its use is freed after it, and gathered again where the backward pass reads it: the
  // model never lies whole on a device. Without it weights are gathered once a step, and stay until the step ends.
  bool borrow_gathers = true;
  // Without it, gradients stay pending sums over the mesh axes along which the work differs, and nothing is
  // communicated for them: sums over micro-batches are reduced once, and an optimizer can reduce-scatter them to its
  // own placement.
  bool reduce = true;
  // The element type in which gradients of parameters cross the devices; by default the parameter's own.
  std::optional<DType> reduction = {};
  // The gradients are recorded, so that a tape around this one differentiates them as well: second derivatives. Without
  // it they are values, constants to other tapes. Each parameter's is then reduced on its own, whatever `reduce` and
  // `reduction` say, and operations whose gradient is made by hand may refuse (no_gradient).
  bool differentiable = false;
};

// Opened by value_and_grad over the parameters of a model. `shadows()` are the same values as fresh arrays over the
// same storage: computing with them is recorded. Tapes nest and do not mix: each knows its own shadows only.
class Tape {
 public:
  // Arrays that are not floating, or absent, take part as constants and get an absent gradient.
  explicit Tape(const std::vector<Array>& parameters, const GradientOptions& options = {});
  ~Tape();  // closes the tape: its shadows are plain arrays from then on
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  const std::vector<Array>& shadows() const { return shadows_; }

  // d loss / d parameter for each parameter, at the parameter's own placement: the contributions of all its uses are
  // added and reduced once, all parameters of one set of mesh axes and element type in one collective. A parameter
  // that the loss does not use gets zeros. Call it once. GradientOptions change how, and whether they are reduced.
  // Errors: a loss that is not a floating scalar (shape_mismatch), or that depends on no parameter (no_gradient).
  // To ledgers the common reduction is the line `where`.
  std::vector<Array> gradients(const Array& loss, std::source_location where = std::source_location::current());

 private:
  struct Guard;
  std::vector<Array> shadows_;
  std::shared_ptr<detail::TapeState> state_;
  std::unique_ptr<Guard> guard_;
};

// x without its graph; a pending sum is summed. What value_and_grad hands out.
Array detached(const Array& x, std::source_location where = std::source_location::current());

}  // namespace tessera
