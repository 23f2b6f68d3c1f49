// sum_tensors: the sum of tensors of one shape, on all cores.
#pragma once

#include "sharding/kernels/tensors.h"

namespace tessera::detail {

// The value of elements that belong to another term of a partial sum. x + -0.0 is x for every x; adding 0.0 would turn
// -0.0 into 0.0. Integers and booleans convert it to 0.
constexpr double no_term = -0.0;

// Returns a tensor like t filled with no_term, without memory for each element. If one term of a partial sum has the
// whole value, the other terms are such tensors.
at::Tensor zero_placeholder(const at::Tensor& t);

// terms[0] + terms[1] + ..., of one shape and element type, added element by element in this order whatever the number
// of threads. Terms that are zero_placeholder are not read; a single other term comes back as it is.
at::Tensor sum_tensors(const Tensors& terms);

// The same, of a floating type narrower than double: added up in double and rounded once.
at::Tensor sum_tensors_in_double(const Tensors& terms);

// sum_tensors for each list, the lists side by side.
Tensors sum_each(const std::vector<Tensors>& lists);

}  // namespace tessera::detail
