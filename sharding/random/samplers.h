// Generators of recipes: jax.random's distributions, drawn block by block.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "sharding/array/recipe.h"
#include "sharding/placement/named_sharding.h"
#include "sharding/random/key.h"
#include "sharding/random/threefry_element.h"
#include "sharding/random/threefry_simd.h"

namespace tessera::detail {

using GeneratorPtr = std::shared_ptr<const Generator>;

// The generators of the functions of these names in random.h, which check the arguments; threefry.h makes the numbers.
// Floating numbers are drawn in `drawn`, float32 or float64.
GeneratorPtr normal_generator(const Key& key, DType drawn);
GeneratorPtr truncated_normal_generator(const Key& key, DType drawn, double lower, double upper);
GeneratorPtr uniform_generator(const Key& key, DType drawn, double low, double high);
GeneratorPtr exponential_generator(const Key& key, DType drawn);
GeneratorPtr gumbel_generator(const Key& key, DType drawn);
// Booleans, true with this probability.
GeneratorPtr bernoulli_generator(const Key& key, double p);
// first + r with 0 <= r < span (span 0: r is any number of the type's width), in `drawn`: int32, int64 or uint8.
GeneratorPtr integer_generator(const Key& key, DType drawn, int64_t first, uint64_t span);
// 32 random bits each, in int64.
GeneratorPtr bit_generator(const Key& key);

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
