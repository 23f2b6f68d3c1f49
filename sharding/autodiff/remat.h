// remat: recomputes intermediate values in the backward pass instead of keeping them.
#pragma once

#include <functional>
#include <vector>

#include "sharding/array/array.h"

namespace tessera {

// The results of the first run that remat keeps (jax.checkpoint_policies).
enum class RematPolicy {
  nothing_saveable,  // none: least memory, most work
  // The results of matrix products, convolutions and attention. The second run reuses them and computes only the rest
  // (activations, norms, collectives). JAX's dots_saveable.
  dots_saveable,
  everything_saveable,  // all: no second run
};

// Returns f(arrays) without keeping intermediate values. The backward pass runs f a second time to recompute them;
// `policy` may keep some of them. (Chen et al., "Training deep nets with sublinear memory cost", 2016; jax.checkpoint.)
//
// Arrays whose gradient is needed must be in `arrays`: arrays that f captures are constants. f must compute the same
// each time; the autograd graph keeps it. Without recording f is called once. Inside a differentiable tape within
// another tape, remat returns f(arrays) without a second run, since second derivatives need the intermediate values.
//
// `arrays` may contain parameters of an open tape, and casts, views and scalings of them. The second run uses the same
// parameters, so the gradients of all uses are added and then reduced once.
std::vector<Array> remat(const std::function<std::vector<Array>(const std::vector<Array>&)>& f,
                         const std::vector<Array>& arrays, RematPolicy policy = RematPolicy::nothing_saveable);

}  // namespace tessera
