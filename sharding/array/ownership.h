// Ownership of an array's memory: whether it may be written in place.
#pragma once

#include <ATen/core/Tensor.h>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// Returns whether `t` is the sole owner of its storage, apart from `others` known references, and covers all of it.
bool owns_memory(const at::Tensor& t, size_t others = 0);
// Returns whether x is the only reference to its array, without cached conversions, and its tensors are the only owners
// of their storages. `others` further references to each storage are allowed.
bool is_sole_owner(const Array& x, size_t others = 0);
// Returns an array with the facts of `a` and other tensors, without the conversions of `a`.
Array with_tensors(const ArrayImpl& a, Tensors local);
// Makes x the sole owner of its memory: replaces tensors that others refer to with copies, and drops the conversions.
void make_sole_owner(Array& x, size_t others = 0);

}  // namespace tessera::detail
