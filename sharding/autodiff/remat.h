// remat: a computation whose intermediate values are not kept, but computed again in the backward pass.
#pragma once

#include <functional>
#include <vector>

#include "sharding/array/array.h"

namespace tessera {

// What is kept of a computation that runs again (jax.checkpoint_policies).
enum class RematPolicy {
  nothing_saveable,  // nothing: least memory, most work
  // The results of matrix products, convolutions and attention: the second run takes them, and does only the rest
  // (activations, norms, collectives). JAX's dots_saveable.
  dots_saveable,
  everything_saveable,  // everything: no second run
};

// f(arrays), with nothing kept of what happens inside; the backward pass runs f a second time. (Chen et al., "Training
// deep nets with sublinear memory cost", 2016; jax.checkpoint.) Everything differentiable has to be in `arrays`: what f
// captures is a constant to it. Parameters of an open tape among them, and casts, views and scalings of such, go into
// the second run as what they are, so that their gradients join those of their other uses and are reduced once with
// all. f must do the same each time; it is called once where no gradient is recorded. `f` is kept by the graph. Inside
// a differentiable tape within another, whose second derivatives need what happens inside, it is f(arrays) itself. A
// policy keeps more.
std::vector<Array> remat(const std::function<std::vector<Array>(const std::vector<Array>&)>& f,
                         const std::vector<Array>& arrays, RematPolicy policy = RematPolicy::nothing_saveable);

}  // namespace tessera
