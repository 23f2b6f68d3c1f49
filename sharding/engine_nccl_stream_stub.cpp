// In place of engine_nccl_stream.cpp where LibTorch is a CPU build: CUDA's default stream.
#include "sharding/engine_nccl.h"

namespace tessera::detail {

void* compute_stream(int) { return nullptr; }

}  // namespace tessera::detail
