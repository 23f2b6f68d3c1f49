// What the optimizers' .cpp files share: arrays that keep the facts of a parameter, and what does not fit named.
#pragma once

#include "nn/tree.h"
#include "sharding/array_impl.h"

namespace tessera::optim::detail {

// `value`'s tensors under a handle of its own, with the path, the layout and the placement of `parameter`; moved there
// if it lies elsewhere on the same mesh.
Array like_parameter(const Array& value, const Array& parameter, const char* verb);

// The element type of a parameter's moments.
DType moment_dtype(DType parameter);

// Every array of `given` (whose name is `what`: "the update") has a partner in `params`: the same number, paths and
// shapes. Absent ones pass. Error (bad_argument, shape_mismatch).
void check_same_tree(const char* verb, const char* what, const nn::Leaves& given, const nn::Leaves& params);

}  // namespace tessera::optim::detail
