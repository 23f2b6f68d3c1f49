// Whose an array's memory is: what may be written to where it lies.
#pragma once

#include <ATen/core/Tensor.h>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// Whether all of this memory is the tensor's, which nobody else holds but so many who have its storage.
bool owns_memory(const at::Tensor& t, size_t others = 0);
// Whether nobody else holds the array or any of its memory, but so many who have its storages.
bool is_sole_owner(const Array& x, size_t others = 0);
// The same facts over other tensors, without what was derived from `a`.
Array with_tensors(const ArrayImpl& a, Tensors local);
// Puts copies in the place of what somebody else holds, and forgets what was derived from the array.
void make_sole_owner(Array& x, size_t others = 0);

}  // namespace tessera::detail
