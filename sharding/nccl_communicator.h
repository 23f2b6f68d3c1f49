// A communicator of NCCL as a transport of device memory, and CUDA's events. The header that knows nccl.h.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <memory>
#include <string>
#include <vector>

#include "sharding/transport.h"

namespace tessera::detail {

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0), "Tessera needs NCCL >= 2.27");

// Error (other) in their words. Of a non-blocking communicator every call may still be in progress.
void check(cudaError_t result);
void check(ncclResult_t result);

// Events that order streams and measure nothing.
std::shared_ptr<void> new_event();
inline cudaEvent_t raw(const std::shared_ptr<void>& event) { return static_cast<cudaEvent_t>(event.get()); }

// One communicator, non-blocking. What is started is first queued by NCCL's own threads, then done by the GPU.
class Communicator : public Transport {
 public:
  Communicator(int index, int count, cudaStream_t stream) : index_(index), count_(count), stream_(stream) {}
  int index() const override { return index_; }
  int count() const override { return count_; }
  std::string name() const override;

  // The first of all; or a part of another, of those that give one colour, there when the other is done with it.
  void join(ncclUniqueId id);
  void split_from(Communicator& whole, int colour);
  void abort();

  // As one group of NCCL: begin(communicator, stream).
  template <class Begin>
  void start(Begin begin) {
    check(ncclGroupStart());
    begin(handle_, stream_);
    check(ncclGroupEnd());
  }
  // Parcels lie in the memory of the GPUs, and go between members of the group.
  void start(const std::vector<Parcel>& sends, const std::vector<Parcel>& receives) override;
  void start_barrier() override;

  // Whether it is queued.
  bool is_done() override;

 private:
  int index_, count_;
  cudaStream_t stream_;
  ncclComm_t handle_ = nullptr;
  void* barrier_ = nullptr;
};

}  // namespace tessera::detail
