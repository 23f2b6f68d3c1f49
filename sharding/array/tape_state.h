// TapeState: the state of one forward pass under value_and_grad.
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
  Tensors gradients;  // one per tensor of the leaf; undefined if there is none
};

// The state of a tape. While it is open, uses of its parameters return leaves.
struct TapeState {
  bool open = true;
  bool spent = false;  // its gradients were computed
  GradientOptions options;
  // If parameters are on sub-meshes of a mesh (pipeline stages): the first sub-mesh. Activations are computed on it
  // until they meet a parameter of a later one.
  const MeshImpl* first_stage = nullptr;
  at::Tensor anchor;  // requires a gradient: records functions of parameters before these have leaves
  std::vector<LateGradients> late;
  // True for a differentiable tape inside another tape: its gradients are recorded. `outside` maps this tape's shadow
  // of a parameter to the parameter itself, if that depends on the other tape's parameters.
  bool nested = false;
  std::map<const ArrayImpl*, ArrayPtr> outside;
};

// Returns the innermost open tape of this thread; null outside. A ScopedValue sets it.
inline TapeState*& current_tape() {
  thread_local TapeState* current = nullptr;
  return current;
}
// Returns whether current operations may be differentiated twice.
inline bool is_nested() { return current_tape() && current_tape()->nested; }
// Returns the tape whose gradients this thread is computing; null outside. A ScopedValue sets it.
inline TapeState*& differentiated_tape() {
  thread_local TapeState* tape = nullptr;
  return tape;
}

}  // namespace tessera::detail
