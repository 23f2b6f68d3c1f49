// In place of compute_stream.cpp where LibTorch is a CPU build: CUDA's default stream.
#include "sharding/runtime/nccl/process_group_nccl.h"

namespace tessera::detail {

void* compute_stream(int) { return nullptr; }

}  // namespace tessera::detail
