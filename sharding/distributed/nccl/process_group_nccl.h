// The nccl engine: what the processes of a program do together with the memory of their GPUs, one GPU each.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <vector>

#include "sharding/distributed/process_group.h"

namespace tessera::detail {

// The group of these processes (indices in the program, this one's among them), in this order, whose tensors lie on
// this process's GPU, contiguous. A verb returns when it is queued. What the compute stream queues between it and its
// work's wait() runs beside it, and what comes after wait() is queued behind it; this thread does not wait for the GPU.
// The tensors are held until then, so that nobody gets the memory anew while the GPU still reads it: no stream is told
// of them. All groups of a process share one communication stream, so that the verbs of all run in the order of the
// calls, and all members must call in one order that suits all. Folds are NCCL's own (2.27 and later): the same bits on
// all members, but sums of bfloat16 and float16 are rounded at every step, max and min need not keep a NaN, and int16
// cannot be folded.
//
// Error (other) where a member is lost before the verb is queued; all communicators are then aborted, and no verb
// succeeds after it. What is queued is watched until the GPU has done it (ControlPlane::watch).
//
// Made once, when its processes first call it, at the same place, and kept for the program's life. The first call
// chooses this process's GPU: that of `device`, where it has a number; else the n-th that it sees where it is the n-th
// on its machine, or the only one that it sees. Errors: bad_argument, where there is no such GPU, or a later call names
// another.
ProcessGroup& gpu_group(const std::vector<int>& processes, c10::Device device = c10::kCUDA);

// The stream on which LibTorch computes on a GPU, as a cudaStream_t.
void* compute_stream(int device);

}  // namespace tessera::detail
