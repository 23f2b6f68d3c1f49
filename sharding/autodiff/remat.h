// remat: a computation whose intermediate values are not kept, but computed again in the backward pass.
#pragma once

#include <functional>
#include <vector>

#include "sharding/array/array.h"

namespace tessera {

// What remat keeps of the first run (jax.checkpoint_policies).
enum class RematPolicy {
  nothing_saveable,  // nothing: least memory, most work
  // The results of matrix products, convolutions and attention: the second run reuses them and computes only the rest
  // (activations, norms, collectives). JAX's dots_saveable.
  dots_saveable,
  everything_saveable,  // everything: no second run
};

// f(arrays), without keeping intermediate values; the backward pass runs f a second time to compute them again.
// `policy` may keep some. (Chen et al., "Training deep nets with sublinear memory cost", 2016; jax.checkpoint.) Arrays
// that want a gradient must be in `arrays`: those that f captures are constants. Parameters of an open tape in
// `arrays`, and casts, views and scalings of them, stay such in the second run, so that their gradients join those of
// their other uses and are reduced once with all. f must compute the same each time; the autograd graph keeps it. Where
// no gradient is recorded, f is called once. Inside a differentiable tape within another tape, remat is just f(arrays),
// since second derivatives need the intermediate values.
std::vector<Array> remat(const std::function<std::vector<Array>(const std::vector<Array>&)>& f,
                         const std::vector<Array>& arrays, RematPolicy policy = RematPolicy::nothing_saveable);

}  // namespace tessera
