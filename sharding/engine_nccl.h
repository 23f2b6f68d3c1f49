// The nccl engine: what the processes of a program do together with the memory of their GPUs, one GPU each.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "sharding/process_group.h"

namespace tessera::detail {

// Collectives that were begun together. The tensors live as long as this does, so that nobody gets their memory anew
// while the GPU still reads it: no stream is told of them.
struct GpuWork {
  std::vector<at::Tensor> held;
  std::shared_ptr<void> done;  // a CUDA event behind them
};

// A group whose tensors lie on this process's GPU, contiguous. A verb returns when it is queued: what the compute
// stream queues from then on comes after it, and this thread does not wait for the GPU. All groups of a process share
// one communication stream, so that the verbs of all run in the order of the calls, and all members must call in one
// order that suits all. Folds are NCCL's own (2.27 and later): the same bits on all members, but sums of bfloat16 and
// float16 are rounded at every step, max and min need not keep a NaN, and int16 cannot be folded.
//
// Error (other) where a member is lost before the verb is queued, or in wait(); all communicators are then aborted, and
// no verb succeeds after it. Where a loss becomes known while this thread waits for its GPU by other means, the watch
// over the processes ends this one (see Peers).
class GpuGroup : public ProcessGroup {
 public:
  // Sums, or other folds, in place of all of these, as one launch: a bucket of gradients. What the compute stream
  // queues until finish() runs beside it.
  virtual GpuWork begin_all_reduce(std::vector<at::Tensor> xs, Fold how, const Waiting& waiting) = 0;
  // What the compute stream queues from here on comes after the work, whose tensors are let go.
  virtual void finish(GpuWork& work) = 0;
  // This thread waits for all that this group has begun, within the timeout.
  virtual void wait(const Waiting& waiting) = 0;
};

// Of these processes (indices in the program, this one's among them), in this order. All processes of the program call
// it at the same place, each with the list that it is in. Made once, by splitting the communicator of all, and kept for
// the program's life. The first call chooses this process's GPU: the n-th that it sees where it is the n-th on its
// machine, or the only one that it sees. Errors: bad_argument, where there is no such GPU.
GpuGroup& gpu_group(const std::vector<int>& processes);

// The stream on which LibTorch computes on a GPU, as a cudaStream_t.
void* compute_stream(int device);

}  // namespace tessera::detail
