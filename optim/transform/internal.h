// What the optimizers' .cpp files share: arrays placed like a parameter, and checks that arrays fit together.
#pragma once

#include <optional>

#include "optim/transform/transform.h"
#include "sharding/array/array_impl.h"

namespace tessera::optim::detail {

// The arrays of leaves.
Arrays arrays_of(const nn::Leaves& leaves);

// Returns an array over `value`'s tensors, with the path, mesh rules and sharding of `parameter`. Reshards it if it has
// another sharding on the same mesh.
Array like_parameter(const Array& value, const Array& parameter, const char* verb);

// The element type of a parameter's moments.
DType moment_dtype(DType parameter);

// Zeros of this shape and element type, replicated on the parameter's mesh; not placed if the parameter is not.
Array zeros_on_mesh_of(const Array& parameter, const Shape& shape, DType dtype);

// Moves `state` to its parameter's mesh, if it was made before the parameter was placed. Error (device_mismatch):
// `state` is placed, the parameter is not.
void follow(const char* verb, Array& state, const nn::Leaf& parameter);
void check_can_follow(const char* verb, const Array& state, const nn::Leaf& parameter);

// `value` in the element type and placement of `old`, the array of the state that it replaces.
Array kept(const Array& value, const Array& old, const char* verb);

// The one number in x; std::nullopt on an abstract mesh, where there are no values.
std::optional<double> known_value(const Array& x);
// Whether known_value would wait for an accelerator.
bool is_on_accelerator(const Array& x);

// The sum of scalars, replicated; 0 if there are none.
Array total(const std::vector<Array>& scalars);

// The placement of x without pending sums and reduced axes, which only arrays in a computation have.
NamedSharding resting_place(const Array& x);

// params + updates, in the parameters' own element types and placements; absent where the update is. Error: another
// tree (check_same_tree).
std::vector<Array> sums(const nn::Leaves& params, const nn::Leaves& updates);

// Updates are not differentiated. Error (no_gradient): value_and_grad is recording one of these arrays.
void check_constant(const char* verb, const nn::Leaves& leaves);
void check_constant(const char* verb, const Arrays& arrays);

// Errors unless `given` (named `what` in the message: "the update") and `params` have the same number of arrays
// (invalid_argument), paths and shapes (shape_mismatch), and none is recorded (no_gradient). Absent arrays pass.
void check_same_tree(const char* verb, const char* what, const nn::Leaves& given, const nn::Leaves& params);

// Prefetches into the processor's caches what the update needs of the arrays a few places after i: the array, then its
// tensor, then the tensor's memory. An update reads thousands of small objects that are no longer in the caches.
void prefetch_next(const Arrays& arrays, size_t i);

// Error (invalid_argument): `count`, the number of an update, is below 1.
void check_count(const char* verb, int64_t count);

// Error (missing_array): there is a gradient, but no state for its parameter.
void check_has_state(const char* verb, const nn::Leaf& parameter, const Array& gradient, const Array& state);

}  // namespace tessera::optim::detail
