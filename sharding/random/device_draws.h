// Draws random blocks on an accelerator, with the same numbers as on the host.
#pragma once

#include <ATen/core/Tensor.h>

#include "sharding/placement/named_sharding.h"
#include "sharding/random/key.h"
#include "sharding/random/threefry_element.h"
#include "sharding/random/threefry_simd.h"

namespace tessera::detail {

// Returns the draw of a block. `uniforms` is the interval of the uniform numbers that the law transforms.
BlockDraw block_draw(Law law, const Key& key, const Interval<float>& uniforms, const Shape& global,
                     const IndexRanges& block);

// Returns the numbers of a draw, in the shape of its block: int64 for bits, bool for bernoulli, else float32. They
// equal the host's bit for bit. LibTorch's operations compute them in some 150 kernels.
at::Tensor drawn_by_operations(const BlockDraw& draw, at::IntArrayRef sizes, c10::Device device);

// A kernel that fills device memory with such numbers. The engine for GPUs registers one for CUDA; otherwise null.
using DrawKernel = void (*)(const BlockDraw& draw, void* out, int device);
DrawKernel& kernel_for_cuda();

// Calls the kernel of the device if there is one, else drawn_by_operations.
at::Tensor drawn_on(const BlockDraw& draw, at::IntArrayRef sizes, c10::Device device);

}  // namespace tessera::detail
