// Replaces libtorch_cuda.cpp if LibTorch is a CPU build: the compute stream is CUDA's default stream.
#include "sharding/runtime/nccl/process_group_nccl.h"

namespace tessera::detail {

void* compute_stream(int) { return nullptr; }

}  // namespace tessera::detail
