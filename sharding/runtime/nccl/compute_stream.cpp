// The stream of LibTorch's own CUDA library, which users may change.
#include <c10/cuda/CUDAStream.h>

#include "sharding/runtime/nccl/process_group_nccl.h"

namespace tessera::detail {

void* compute_stream(int device) {
  return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).stream();
}

}  // namespace tessera::detail
