// Internal helpers: arrays sharded like a parameter, and checks that arrays fit together.
#pragma once

#include <optional>

#include "optim/transform/transform.h"
#include "sharding/array/array_impl.h"

namespace tessera::optim::detail {

// Returns the beginning of a message: the leaf's path and a colon; empty for a tree that is a single array.
std::string name_of_leaf(const nn::Leaf& leaf);

// Returns the arrays of leaves.
Arrays arrays_of(const nn::Leaves& leaves);

// Returns an array over `value`'s tensors, with the path, mesh rules and sharding of `parameter`. Reshards it if it has
// another sharding on the same mesh.
Array like_parameter(const Array& value, const Array& parameter, const char* verb);

// Returns the element type of a parameter's moments.
DType moment_dtype(DType parameter);

// Returns zeros of this shape and element type, replicated on the parameter's mesh; not placed if the parameter is not.
Array zeros_on_mesh_of(const Array& parameter, const Shape& shape, DType dtype);

// Places `state` like its parameter if it was made before the parameter was placed. Error (device_mismatch): `state` is
// placed and the parameter is not.
void follow(const char* verb, Array& state, const nn::Leaf& parameter);
void check_can_follow(const char* verb, const Array& state, const nn::Leaf& parameter);

// Returns `value` in the element type and sharding of `old`, the array of the state that it replaces.
Array kept(const Array& value, const Array& old, const char* verb);

// Returns the number in x, which has one element; std::nullopt on an abstract mesh, where there are no values.
std::optional<double> known_value(const Array& x);
// Returns whether known_value would wait for an accelerator.
bool is_on_accelerator(const Array& x);

// Returns the replicated sum of scalars; 0 if there are none.
Array total(const std::vector<Array>& scalars);

// Returns the sharding of x without partial sums and reduced axes, which only arrays inside a computation have.
NamedSharding resting_place(const Array& x);

// Returns params + updates, in the parameters' own element types and shardings; absent where the update is. Errors: as
// check_same_tree.
std::vector<Array> sums(const nn::Leaves& params, const nn::Leaves& updates);

// Throws Error (no_gradient) if value_and_grad records one of these arrays, because updates are not differentiated.
void check_constant(const char* verb, const nn::Leaves& leaves);
void check_constant(const char* verb, const Arrays& arrays);

// Throws unless `given` (named `what` in the message: "the update") fits `params`. Absent arrays always fit.
// Errors
//   invalid_argument: a different number of arrays
//   shape_mismatch: different paths or shapes
//   no_gradient: a recorded array
void check_same_tree(const char* verb, const char* what, const nn::Leaves& given, const nn::Leaves& params);

// Prefetches the arrays a few positions after i into the CPU caches: the array, then its tensor, then the tensor's
// memory. An update reads thousands of small objects that are no longer in the caches.
void prefetch_next(const Arrays& arrays, size_t i);

// Throws Error (invalid_argument) unless `state` has `trees` arrays for each parameter.
void check_sizes(const char* verb, const nn::Leaves& state, size_t trees, const nn::Leaves& params);

// Throws Error (invalid_argument) if `count`, the number of an update, is below 1.
void check_count(const char* verb, int64_t count);

// Throws Error (missing_array) if there is a gradient, but no state for its parameter.
void check_has_state(const char* verb, const nn::Leaf& parameter, const Array& gradient, const Array& state);

}  // namespace tessera::optim::detail
