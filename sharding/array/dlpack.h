// DLPack: arrays and tensors of other libraries (numpy, PyTorch, JAX, CuPy) over the same memory.
#pragma once

#include <optional>

#include "sharding/array/array.h"
#include "sharding/placement/mesh.h"

struct DLManagedTensor;           // <ATen/dlpack.h> defines both
struct DLManagedTensorVersioned;  // DLPack 1.0 and later; in Python the capsule "dltensor_versioned"

namespace tessera {

// Return an array over the memory of a DLPack tensor, and take ownership: the deleter runs when nothing refers to the
// memory any more. Strides may be 0 or more. Nobody may write to the memory afterwards; an optimizer copies it before
// it updates the array. Without a mesh the array is uncommitted, and values of a GPU are copied to the host. With a
// mesh, the array is replicated, in the same memory. On a GPU, the values must be ready on the current stream.
// Errors, after which the caller still owns the tensor
//   missing_array: a null pointer
//   dtype_mismatch: an element type that arrays do not have
//   device_mismatch: other memory than the memory of the mesh's devices
//   invalid_argument: a negative stride, a DLPack version other than 1, or a type or device that LibTorch rejects
//   invalid_argument: a tensor with elements but without data, or without its shape
Array from_dlpack(DLManagedTensor* tensor, const std::optional<Mesh>& mesh = std::nullopt);
Array from_dlpack(DLManagedTensorVersioned* tensor, const std::optional<Mesh>& mesh = std::nullopt);

// Return a DLPack tensor over the memory of x, on the CPU or a GPU. The tensor may outlive x. The consumer calls its
// deleter once, and must not write to its memory; the versioned tensor has the read-only flag. Until the deleter is
// called, an optimizer that updates x writes to new memory, so the exported values do not change. On a GPU, they are
// ready on the current stream.
// Errors
//   missing_array: an absent array, or an array without values (of an abstract mesh, of other processes)
//   invalid_argument: several blocks, a partial sum, or a value that varies in a shard_map (export gather(x))
//   invalid_argument: an array that is being differentiated (export stop_gradient(x))
DLManagedTensor* to_dlpack(const Array& x);
DLManagedTensorVersioned* to_dlpack_versioned(const Array& x);

}  // namespace tessera
