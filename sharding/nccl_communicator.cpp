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

bool Communicator::is_queued() {
  if (!handle_) return false;  // of a part, until the whole has been split
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(handle_, &state));
  check(state);
  return state != ncclInProgress;
}

}  // namespace tessera::detail
