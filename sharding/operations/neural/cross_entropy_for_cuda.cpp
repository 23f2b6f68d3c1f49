// Registers the CUDA kernels of the cross-entropy, on LibTorch's stream.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>

#include "sharding/base/fail.h"
#include "sharding/operations/neural/loss_kernel.h"

namespace tessera::detail {

cudaError_t losses_by_kernel(const LossRows& rows, cudaStream_t stream);

namespace {

void compute(const LossRows& rows, int device) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  const c10::cuda::CUDAGuard guard(index);
  const cudaError_t error = losses_by_kernel(rows, c10::cuda::getCurrentCUDAStream(index).stream());
  if (error != cudaSuccess)
    fail(ErrorKind::other, "cross_entropy", "the kernel of losses could not be started: {}.",
         cudaGetErrorString(error));
}

const bool known = [] {
  loss_kernel_of(c10::kCUDA) = &compute;
  return true;
}();

}  // namespace

// Programs that link the engine for GPUs reference this name, so that the linker keeps this file.
extern "C" void tessera_use_cuda_losses() {}

}  // namespace tessera::detail
