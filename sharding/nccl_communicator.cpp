// NCCL's calls, none of which waits.
#include "sharding/nccl_communicator.h"

#include <fmt/format.h>

#include "sharding/error.h"

namespace tessera::detail {
namespace {

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

}  // namespace

void check(cudaError_t result) {
  if (result != cudaSuccess) throw Error(ErrorKind::other, fmt::format("CUDA says: {}", cudaGetErrorString(result)));
}

void check(ncclResult_t result) {
  if (result != ncclSuccess && result != ncclInProgress)
    throw Error(ErrorKind::other,
                fmt::format("NCCL says: {} ({})", ncclGetErrorString(result), ncclGetLastError(nullptr)));
}

std::shared_ptr<void> new_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return {event, [](void* e) { cudaEventDestroy(static_cast<cudaEvent_t>(e)); }};
}

std::string Communicator::name() const {
  int version = 0;
  ncclGetVersion(&version);
  return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void Communicator::join(ncclUniqueId id) {
  ncclConfig_t config = non_blocking();
  check(ncclCommInitRankConfig(&handle_, count_, id, index_, &config));
}

void Communicator::split_from(Communicator& whole, int colour) {
  ncclConfig_t config = non_blocking();
  check(ncclCommSplit(whole.handle_, colour, index_, &handle_, &config));
}

void Communicator::abort() {
  if (handle_) ncclCommAbort(handle_);
  handle_ = nullptr;
}

void Communicator::start(const std::vector<Parcel>& sends, const std::vector<Parcel>& receives) {
  start([&](ncclComm_t comm, cudaStream_t stream) {
    for (const Parcel& p : receives)
      check(ncclRecv(p.data, static_cast<size_t>(p.bytes), ncclUint8, p.process, comm, stream));
    for (const Parcel& p : sends)
      check(ncclSend(p.data, static_cast<size_t>(p.bytes), ncclUint8, p.process, comm, stream));
  });
}

void Communicator::start_barrier() {
  if (!barrier_) check(cudaMalloc(&barrier_, sizeof(int)));
  start([&](ncclComm_t comm, cudaStream_t stream) {
    check(ncclAllReduce(barrier_, barrier_, 1, ncclInt32, ncclSum, comm, stream));
  });
}

bool Communicator::is_done() {
  if (!handle_) return false;  // of a part, until the whole has been split
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(handle_, &state));
  check(state);
  return state != ncclInProgress;
}

}  // namespace tessera::detail
