// The CUDA kernels of the cross-entropy: one block per row, with the arithmetic of cross_entropy_row.h.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "sharding/operations/neural/cross_entropy_row.h"

namespace tessera::detail {
namespace {

constexpr int warp_size = 32;

// Returns the sums of all threads of a warp, to each of them.
__device__ RowSums over_warp(RowSums s) {
  constexpr unsigned all = 0xffffffff;
  for (int distance = warp_size / 2; distance > 0; distance /= 2)
    s = merged(s, {__shfl_xor_sync(all, s.max, distance), __shfl_xor_sync(all, s.sum, distance),
                   __shfl_xor_sync(all, s.deviations, distance)});
  return s;
}

// Returns the sums of all threads of a block, to its first warp. Blocks consist of whole warps.
__device__ RowSums over_block(RowSums s) {
  __shared__ float of_warps[3][max_row_threads / warp_size];
  const unsigned lane = threadIdx.x % warp_size, warp = threadIdx.x / warp_size;
  s = over_warp(s);
  __syncthreads();  // the previous row's sums have been read
  if (lane == 0) of_warps[0][warp] = s.max, of_warps[1][warp] = s.sum, of_warps[2][warp] = s.deviations;
  __syncthreads();
  if (warp > 0) return s;
  return over_warp(lane < blockDim.x / warp_size ? RowSums{of_warps[0][lane], of_warps[1][lane], of_warps[2][lane]}
                                                 : RowSums());
}

template <class T>
__global__ void __launch_bounds__(max_row_threads) compute(const LossRows rows) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int64_t row = blockIdx.x; row < rows.rows; row += gridDim.x) {
    const RowSums s = over_block(thread_sums<T>(rows, row, thread, threads));
    if (thread == 0) finish_row<T>(rows, row, s);
  }
}

template <class T, class G>
__global__ void __launch_bounds__(max_row_threads) differentiate(const LossRows rows) {
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int64_t row = blockIdx.x; row < rows.rows; row += gridDim.x) thread_gradients<T, G>(rows, row, thread, threads);
}

template <class T>
auto differentiate_into(LogitType type) {
  if constexpr (sizeof(T) == 4) {
    if (type == LogitType::float16) return differentiate<T, __half>;
    if (type == LogitType::bfloat16) return differentiate<T, __nv_bfloat16>;
  }
  return differentiate<T, T>;
}

template <class T>
void launch(const LossRows& rows, cudaStream_t stream) {
  constexpr int64_t max_blocks = 1 << 30;
  const auto blocks = static_cast<unsigned>(rows.rows < max_blocks ? rows.rows : max_blocks);
  const auto kernel = rows.gradients ? differentiate_into<T>(rows.gradient_type) : compute<T>;
  kernel<<<blocks, row_threads<T>(rows.vocab), 0, stream>>>(rows);
}

}  // namespace

// Computes at least one row on this stream of the current device. Returns cudaSuccess, or the error of the launch.
cudaError_t losses_by_kernel(const LossRows& rows, cudaStream_t stream) {
  if (rows.type == LogitType::float32)
    launch<float>(rows, stream);
  else if (rows.type == LogitType::float16)
    launch<__half>(rows, stream);
  else
    launch<__nv_bfloat16>(rows, stream);
  return cudaGetLastError();
}

}  // namespace tessera::detail
