// TapeState: what one forward pass under value_and_grad keeps.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "sharding/array/array_impl.h"
#include "sharding/array/gradient_options.h"

namespace tessera::detail {

// Gradients of a leaf that the loss's graph does not reach, because the backward pass recomputed its use (remat).
struct LateGradients {
  ArrayPtr parameter, leaf;
  Tensors gradients;  // one per tensor of the leaf, undefined where there is none
};

// The state of a tape. Its parameters give out leaves while it is open.
struct TapeState {
  bool open = true;
  bool spent = false;  // its gradients were computed
  GradientOptions options;
  // Where parameters lie on sub-meshes of a mesh: the first of these sub-meshes, on which activations are computed
  // until they meet a parameter of a later one.
  const MeshImpl* first_stage = nullptr;
  at::Tensor anchor;  // requires a gradient, so that a function of parameters alone is recorded before they have leaves
  std::vector<LateGradients> late;
  // A differentiable tape inside another tape: its gradients are recorded. `outside` maps this tape's shadow of a
  // parameter to the parameter itself, where that depends on the other tape's parameters.
  bool nested = false;
  std::map<const ArrayImpl*, ArrayPtr> outside;
};

// The innermost open tape of this thread; null outside. A ScopedValue sets it.
inline TapeState*& current_tape() {
  thread_local TapeState* current = nullptr;
  return current;
}
// Whether what is computed now may be differentiated twice.
inline bool is_nested() { return current_tape() && current_tape()->nested; }
// The tape whose gradients this thread is computing; null outside. A ScopedValue sets it.
inline TapeState*& differentiated_tape() {
  thread_local TapeState* tape = nullptr;
  return tape;
}

}  // namespace tessera::detail
