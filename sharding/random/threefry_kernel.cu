// The CUDA kernel of the generators: one thread per element, with the arithmetic of threefry_element.h.
#include <cuda_runtime.h>

#include "sharding/random/threefry_element.h"

namespace tessera::detail {
namespace {

constexpr int threads = 256;

template <class T>
__device__ T element(const BlockDraw& draw, int64_t i);
template <>
__device__ int64_t element(const BlockDraw& draw, int64_t i) {
  return bits_at(draw, i);
}
template <>
__device__ float element(const BlockDraw& draw, int64_t i) {
  return number_at(draw, i);
}
template <>
__device__ bool element(const BlockDraw& draw, int64_t i) {
  return number_at(draw, i) < draw.chance;
}

template <class T>
__global__ void __launch_bounds__(threads) fill(const BlockDraw draw, T* out) {
  const int64_t step = int64_t{gridDim.x} * threads;
  for (int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x; i < draw.size; i += step) out[i] = element<T>(draw, i);
}

template <class T>
void launch(const BlockDraw& draw, void* out, cudaStream_t stream) {
  constexpr int64_t max_blocks = 1 << 16;
  const int64_t blocks = (draw.size + threads - 1) / threads;
  fill<<<static_cast<unsigned>(blocks < max_blocks ? blocks : max_blocks), threads, 0, stream>>>(draw,
                                                                                                 static_cast<T*>(out));
}

}  // namespace

// Fills `out`, in the current device's memory, on this stream. Returns cudaSuccess, or the error of the launch.
cudaError_t fill_by_kernel(const BlockDraw& draw, void* out, cudaStream_t stream) {
  if (draw.law == Law::bits)
    launch<int64_t>(draw, out, stream);
  else if (draw.law == Law::bernoulli)
    launch<bool>(draw, out, stream);
  else
    launch<float>(draw, out, stream);
  return cudaGetLastError();
}

}  // namespace tessera::detail
