// Tensors: the local tensors of one array, or the terms of one sum.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

namespace tessera::detail {

using Tensors = c10::SmallVector<at::Tensor, 1>;

}  // namespace tessera::detail
