// Short tensors, as the blocks of ZeRO-1 and FSDP are: LibTorch's dispatcher takes longer than their elements.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::detail {

// Whether its elements lie in a row in the memory of the CPU, and are so few that it pays to pass the dispatcher by.
bool is_short(const at::Tensor& t);
// Of any tensor a contiguous copy, that nothing is recorded of.
at::Tensor copy_of(const at::Tensor& t);

}  // namespace tessera::detail
