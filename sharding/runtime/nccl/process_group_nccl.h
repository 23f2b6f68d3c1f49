// The NCCL process group: collectives on the memory of GPUs, one GPU per process.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

#include "sharding/runtime/process_group.h"

namespace tessera::detail {

// The group of these processes (indices in the program, this process's among them), in this order, for contiguous
// tensors on this process's GPU. A collective returns when it is queued. What the compute stream queues between it and
// its Work's wait() runs beside it; what comes after wait() is queued behind it, without a wait of the stream if the
// work is done by then; the calling thread does not wait for the GPU. The Work holds the tensors until wait(), so that
// the allocator cannot reuse their memory while the GPU still reads it (they are not recorded on the communication
// stream); one that is given up holds them until the GPU has done it. All groups of a process share that one stream:
// their collectives run in the order of the calls, and all members must call in one order that suits all; each group's
// p2p_channel() has a stream of its own. Reductions
// are NCCL's own (2.27 and later): the same bits on all members, but sums of bfloat16 and float16 are rounded at every
// step, max and min need not keep a NaN, and int16 cannot be reduced.
//
// Error (other) if a member is lost before the collective is queued; all communicators are then aborted, and no later
// collective succeeds. What is queued is watched until the GPU has done it (ControlPlane::watch).
//
// A group is made when its processes first call this, at the same place, and lives as long as the program. The first
// call chooses this process's GPU: the one that `device` numbers; without a number the only GPU that the process sees,
// or the n-th for the n-th process of its machine. Errors (invalid_argument): there is no such GPU, or a later call
// names another.
ProcessGroup& gpu_group(const std::vector<int>& processes, c10::Device device = c10::kCUDA);

// The stream on which LibTorch computes on a GPU, as a cudaStream_t.
void* compute_stream(int device);

}  // namespace tessera::detail
