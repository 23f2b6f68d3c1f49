// The NCCL process group: collectives on the memory of GPUs, one GPU per process.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

#include "sharding/runtime/process_group.h"

namespace tessera::detail {

// Returns the group of these processes (indices in the program, which include this one) in this order, for contiguous
// tensors on this process's GPU.
// - A collective returns when it is queued. Kernels that the compute stream queues between the collective and its
//   Work's wait() run concurrently with it. Later kernels are queued after it; the stream does not wait if the work is
//   already done. The calling thread never waits for the GPU.
// - The Work holds the tensors until wait(), so that the allocator cannot reuse their memory while the GPU still reads
//   it (they are not recorded on the communication stream). An abandoned Work holds them until the GPU has completed
//   it.
// - All groups of a process share the communication stream. Their collectives run in the order of the calls, so all
//   members must call in an order that is consistent on all. Each group's p2p_channel() has a separate stream.
// - Reductions are NCCL's (2.27 and later): the same bits on all members. Sums of bfloat16 and float16 are rounded at
//   each step, max and min may not propagate NaN, and int16 cannot be reduced.
//
// If a member is lost before the collective is queued, throws lost_process. All communicators are then aborted, and no
// later collective succeeds. Queued work is watched until the GPU has completed it (ControlPlane::watch).
//
// A group is created when its processes first call this, at the same place, and lives until the program ends. The first
// call chooses this process's GPU: the GPU whose number `device` has. Without a number, it is the only visible GPU, or
// the n-th for the n-th process of its machine. Throws invalid_argument if there is no such GPU, or if a later call
// names another.
ProcessGroup& gpu_group(const std::vector<int>& processes, c10::Device device = c10::kCUDA);

// Returns the stream on which LibTorch computes on a GPU, as a cudaStream_t.
void* compute_stream(int device);

}  // namespace tessera::detail
