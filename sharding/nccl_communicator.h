// A communicator of NCCL whose calls do not wait, and CUDA's events. The header that knows nccl.h.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <memory>

namespace tessera::detail {

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0), "Tessera needs NCCL >= 2.27");

// Error (other) in their words. Of a non-blocking communicator every call may still be in progress.
void check(cudaError_t result);
void check(ncclResult_t result);

// Events that order streams and measure nothing.
std::shared_ptr<void> new_event();
inline cudaEvent_t raw(const std::shared_ptr<void>& event) { return static_cast<cudaEvent_t>(event.get()); }

// What is started is first queued by NCCL's own threads, then done by the GPU.
class Communicator {
 public:
  Communicator(int index, int count, cudaStream_t stream) : index_(index), count_(count), stream_(stream) {}
  int index() const { return index_; }
  int count() const { return count_; }

  // The first of all; or a part of another, of those that give one colour, there when the other is done with it.
  void join(ncclUniqueId id);
  void split_from(Communicator& whole, int colour);
  void abort();

  // As one group of NCCL: calls(communicator, stream).
  template <class Calls>
  void start(Calls calls) {
    check(ncclGroupStart());
    calls(handle_, stream_);
    check(ncclGroupEnd());
  }
  // Whether it is queued.
  bool is_queued();

 private:
  int index_, count_;
  cudaStream_t stream_;
  ncclComm_t handle_ = nullptr;
};

}  // namespace tessera::detail
