// Tape: one forward pass whose gradient is wanted. The leaves of its parameters live as long as the tape.
#pragma once

#include <memory>
#include <source_location>
#include <vector>

#include "sharding/array/array.h"
#include "sharding/array/gradient_options.h"

namespace tessera {

namespace detail {
struct TapeState;
}

// Records the computations with the parameters of a model; value_and_grad opens it. `shadows()` are new arrays over the
// parameters' storage; computations with them are recorded. Tapes may nest; each records its own shadows only.
class Tape {
 public:
  // Opens a tape. Arrays that are not floating, or are absent, are constants and get an absent gradient.
  explicit Tape(const std::vector<Array>& parameters, const GradientOptions& options = {});
  ~Tape();  // closes the tape; its shadows become plain arrays
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  const std::vector<Array>& shadows() const { return shadows_; }

  // Stop and restart recording. Other tapes may be opened and paused meanwhile; they are independent of this one.
  void pause();
  void resume();

  // Returns d loss / d parameter for each parameter, with the parameter's own sharding. The contributions of all uses
  // are added and reduced once: one collective for all parameters with the same mesh axes and element type. A parameter
  // that the loss does not use gets zeros. Call it once. GradientOptions specify how, and whether, gradients are
  // reduced. Ledgers attribute the collective to the line `where`.
  //
  // Errors
  //   missing_array: an absent loss
  //   dtype_mismatch: a scalar loss that is not floating
  //   shape_mismatch: a loss that is not a scalar
  //   no_gradient: a loss that depends on no parameter, or a second call
  std::vector<Array> gradients(const Array& loss, std::source_location where = std::source_location::current());

 private:
  struct Guard;
  std::vector<Array> shadows_;
  std::shared_ptr<detail::TapeState> state_;
  std::unique_ptr<Guard> guard_;
};

namespace detail {

// Returns x without its autograd graph, with the same sharding.
Array drop_graph(const Array& x);

// Returns x as value_and_grad returns its results: without its autograd graph, with partial sums reduced, and moved
// from a sub-mesh to the whole mesh.
Array finalize_result(const Array& x, std::source_location where = std::source_location::current());

}  // namespace detail
}  // namespace tessera
