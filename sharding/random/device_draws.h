// Draws where an accelerator holds the block: by a kernel of the library's, or else by LibTorch's operations.
#pragma once

#include <ATen/core/Tensor.h>

#include "sharding/placement/named_sharding.h"
#include "sharding/random/threefry_element.h"
#include "sharding/random/threefry_simd.h"

namespace tessera::detail {

// The draw of a block: `uniforms` is the interval of the uniform numbers that the law is made of.
BlockDraw block_draw(Law law, const Key& key, const Interval<float>& uniforms, const Shape& global,
                     const IndexRanges& block);

// The numbers of a draw, in the sizes of its block: int64 of bits, booleans of bernoulli, else float32; the bits of the
// host's. LibTorch's operations make them in some 150 kernels.
at::Tensor drawn_by_operations(const BlockDraw& draw, at::IntArrayRef sizes, c10::Device device);

// Fills the memory of a device of one kind with such numbers: the engine for GPUs has one for CUDA. Null: there is
// none.
using DrawKernel = void (*)(const BlockDraw& draw, void* out, int device);
DrawKernel& kernel_for_cuda();

// By the kernel of that device, else by operations.
at::Tensor drawn_on(const BlockDraw& draw, at::IntArrayRef sizes, c10::Device device);

}  // namespace tessera::detail
