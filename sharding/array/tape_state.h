// TapeState: what one forward pass under value_and_grad keeps.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "sharding/array/array_impl.h"
#include "sharding/array/gradient_options.h"

namespace tessera::detail {

// Gradients of a leaf that the graph of the loss does not lead to: from what the backward pass computed again.
struct LateGradients {
  ArrayPtr parameter, leaf;
  Tensors gradients;  // one per tensor of the leaf, undefined where there is none
};

// Its parameters hand out leaves while it is open.
struct TapeState {
  bool open = true;
  bool spent = false;  // its gradients were computed
  GradientOptions options;
  at::Tensor anchor;  // wants a gradient, so that a function of parameters alone is recorded before they have leaves
  std::vector<LateGradients> late;
  // Differentiable, inside another tape: its gradients are recorded. `outside` are the parameters that depend on the
  // other tape's, by their shadows.
  bool nested = false;
  std::map<const ArrayImpl*, ArrayPtr> outside;
};

// The innermost open tape of this thread; null outside.
TapeState* current_tape();
// Whether what is computed now may be differentiated twice.
bool is_nested();
// The one whose gradients this thread is computing; null outside.
TapeState* differentiated_tape();

// While one lives, the tape is the current one of this thread, or the differentiated one.
class TapeScope {
 public:
  enum class As : uint8_t { current, differentiated };
  TapeScope(TapeState* tape, As as);
  ~TapeScope();
  TapeScope(const TapeScope&) = delete;
  TapeScope& operator=(const TapeScope&) = delete;

 private:
  TapeState*& place_;
  TapeState* outer_;
};

}  // namespace tessera::detail
