// What the optimizers' .cpp files share: arrays that keep the facts of a parameter, and what does not fit named.
#pragma once

#include <optional>

#include "optim/transform.h"
#include "sharding/array/array_impl.h"

namespace tessera::optim::detail {

// The arrays of leaves.
Arrays arrays_of(const nn::Leaves& leaves);

// `value`'s tensors under a handle of its own, with the path, the layout and the placement of `parameter`; moved there
// if it lies elsewhere on the same mesh.
Array like_parameter(const Array& value, const Array& parameter, const char* verb);

// The element type of a parameter's moments.
DType moment_dtype(DType parameter);

// A zero of this shape and element type beside the parameter: on its mesh, replicated; on none, if it is on none.
Array zeros_beside(const Array& parameter, const Shape& shape, DType dtype);

// `state` on its parameter's mesh, where it was made before the parameter was placed. Error (device_mismatch): it lies
// on a mesh, the parameter on none.
void follow(const char* verb, Array& state, const nn::Leaf& parameter);
void check_can_follow(const char* verb, const Array& state, const nn::Leaf& parameter);

// An array of the state whose value is a new one: in the old one's element type and placement.
Array kept(const Array& value, const Array& old, const char* verb);

// The one number in x; nothing on an abstract mesh, where there are no values.
std::optional<double> known_value(const Array& x);

// The sum of scalars, replicated; 0 of none.
Array total(const std::vector<Array>& scalars);

// Where x lies, without what only a computation has: pending sums, reduced axes.
NamedSharding resting_place(const Array& x);

// Updates are not differentiated. Error (no_gradient): value_and_grad is recording one of these arrays.
void check_constant(const char* verb, const nn::Leaves& leaves);
void check_constant(const char* verb, const Arrays& arrays);

// Every array of `given` (whose name is `what`: "the update") has a partner in `params`: the same number, paths and
// shapes; none is being recorded. Absent ones pass. Error (bad_argument, shape_mismatch, no_gradient).
void check_same_tree(const char* verb, const char* what, const nn::Leaves& given, const nn::Leaves& params);

// An update meets thousands of small objects that the last one has pushed out of the caches: the ones a few arrays
// ahead are asked for while this one's are used. First the array, then its tensor, then the tensor's memory.
void ask_for_next(const Arrays& arrays, size_t i);

// Error (bad_argument): the number of an update is below 1.
void check_count(const char* verb, int64_t count);

// Error (absent): a gradient is there, the state of its parameter is not.
void check_has_state(const char* verb, const nn::Leaf& parameter, const Array& gradient, const Array& state);

}  // namespace tessera::optim::detail
