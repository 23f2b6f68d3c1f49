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

// Returns terms[0] + terms[1] + ... for terms of one shape and element type. Each element is summed in this order,
// whatever the number of threads. Terms that are zero_placeholder are not read; a single other term is returned itself.
at::Tensor sum_tensors(const Tensors& terms);

// The same for a floating type narrower than double: summed in double and rounded once.
at::Tensor sum_tensors_in_double(const Tensors& terms);

// Returns sum_tensors of each list; different lists are summed concurrently.
Tensors sum_each(const std::vector<Tensors>& lists);

}  // namespace tessera::detail
