// The CUDA kernel of custom_kernel.cpp. One thread computes one element.
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "examples/custom_kernel.h"

namespace {

__global__ void compute(const GatedUnits u) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= u.n) return;
  const float gate = u.gate[i], up = u.up[i], sigmoid = 1 / (1 + expf(-gate));
  if (!u.cotangent) {
    u.y[i] = gate * sigmoid * up;
  } else {
    u.gate_gradient[i] = u.cotangent[i] * up * sigmoid * (1 + gate * (1 - sigmoid));
    u.up_gradient[i] = u.cotangent[i] * gate * sigmoid;
  }
}

}  // namespace

void compute_on_gpu(const GatedUnits& units) {
  constexpr int threads = 256;
  const auto blocks = static_cast<unsigned>((units.n + threads - 1) / threads);
  if (blocks == 0) return;
  compute<<<blocks, threads, 0, c10::cuda::getCurrentCUDAStream()>>>(units);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}
