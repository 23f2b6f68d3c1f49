// remat: a computation whose intermediate values are not kept, but computed again in the backward pass.
#pragma once

#include <functional>
#include <vector>

#include "sharding/array.h"

namespace tessera {

// f(arrays), with nothing kept of what happens inside; the backward pass runs f a second time. (Chen et al., "Training
// deep nets with sublinear memory cost", 2016; jax.checkpoint.) Everything differentiable has to be in `arrays`: what f
// captures is a constant to it. Parameters of an open tape among them, and casts, views and scalings of such, go into
// the second run as what they are, so that their gradients join those of their other uses and are reduced once with
// all. f must do the same each time; it is called once where no gradient is recorded. `f` is kept by the graph.
std::vector<Array> remat(const std::function<std::vector<Array>(const std::vector<Array>&)>& f,
                         const std::vector<Array>& arrays);

}  // namespace tessera
