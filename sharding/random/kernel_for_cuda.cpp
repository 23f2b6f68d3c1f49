// Registers the CUDA kernel of random numbers, on LibTorch's stream.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>

#include "sharding/base/fail.h"
#include "sharding/random/device_draws.h"

namespace tessera::detail {

cudaError_t fill_by_kernel(const BlockDraw& draw, void* out, cudaStream_t stream);

namespace {

void fill(const BlockDraw& draw, void* out, int device) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  const c10::cuda::CUDAGuard guard(index);
  const cudaError_t error = fill_by_kernel(draw, out, c10::cuda::getCurrentCUDAStream(index).stream());
  if (error != cudaSuccess)
    fail(ErrorKind::other, "random", "the kernel of random numbers could not be started: {}.",
         cudaGetErrorString(error));
}

const bool known = [] {
  kernel_for_cuda() = &fill;
  return true;
}();

}  // namespace

// Programs that link the engine for GPUs reference this name, so that the linker keeps this file.
extern "C" void tessera_use_cuda_draws() {}

}  // namespace tessera::detail
