// Tape: one forward pass whose gradient is wanted; the leaves of its parameters live and die with it.
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

// Opened by value_and_grad over the parameters of a model. `shadows()` are new arrays over the parameters' storage;
// what is computed from them is recorded. Tapes may nest; each records its own shadows only.
class Tape {
 public:
  // Arrays that are not floating, or absent, take part as constants and get an absent gradient.
  explicit Tape(const std::vector<Array>& parameters, const GradientOptions& options = {});
  ~Tape();  // closes the tape: its shadows are plain arrays from then on
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  const std::vector<Array>& shadows() const { return shadows_; }

  // Nothing is recorded until resume(), and other tapes may be opened, and paused, that do not mix with this one.
  void pause();
  void resume();

  // d loss / d parameter for each parameter, at the parameter's own placement: the contributions of all its uses are
  // added and reduced once, all parameters of one set of mesh axes and element type in one collective. A parameter
  // that the loss does not use gets zeros. Call it once. GradientOptions say how, and whether, gradients are reduced.
  // Errors: a loss that is not a floating scalar (shape_mismatch), or that depends on no parameter (no_gradient).
  // Ledgers put the common reduction down to the line `where`.
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

// Returns x as value_and_grad returns its results: without its autograd graph, a pending sum reduced, and moved from a
// sub-mesh to the whole mesh.
Array finalize_result(const Array& x, std::source_location where = std::source_location::current());

}  // namespace detail
}  // namespace tessera
