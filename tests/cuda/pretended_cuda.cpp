// The part of CUDA's runtime that the library uses, for a pretended GPU (tests/device/pretended_device.cpp).
//
// Kernels run on the CPU, on the calling thread, after all work queued before them on the default stream. Every other
// stream has a thread that is slow on purpose, so code that does not wait reads data that has not arrived.
#include "tests/cuda/pretended_cuda.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/device/pretended_memory.h"

using tessera::testing::current_device;
using tessera::testing::pretended_memory;

struct CUevent_st {
  std::shared_future<void> reached;  // ready after the last record; invalid before the first
  CUstream_st* stream = nullptr;     // the stream and the task on it
  int64_t task = 0;
};

CUstream_st::CUstream_st(Purpose purpose) : purpose_(purpose) {
  std::thread([this] { work(); }).detach();
}

int64_t CUstream_st::add(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.notify_all();
  return ++added_;
}

void CUstream_st::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return tasks_.empty() && !is_busy_; });
}

void CUstream_st::catch_up(std::optional<int64_t> task) {
  const std::lock_guard lock(mutex_);
  may_begin_ = std::max(may_begin_, task.value_or(added_));
  changed_.notify_all();
}

void CUstream_st::stand_still(bool stands_still) {
  const std::lock_guard lock(mutex_);
  stands_still_ = stands_still;
  changed_.notify_all();
}

void CUstream_st::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !tasks_.empty() && (!stands_still_ || begun_ < may_begin_); });
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    is_busy_ = true;
    ++begun_;
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    task();
    lock.lock();
    is_busy_ = false;
    changed_.notify_all();
  }
}

namespace {

// The default stream, on which LibTorch computes. Its handle in CUDA is nullptr.
CUstream_st& default_stream() {
  static auto* stream = new CUstream_st(CUstream_st::Purpose::computes);
  return *stream;
}

// Returns all other streams, on which collectives run.
std::vector<CUstream_st*>& communicating() {
  static auto* streams = new std::vector<CUstream_st*>;
  return *streams;
}

std::atomic<int64_t> waits{0};

CUstream_st& stream_of(cudaStream_t stream) { return stream ? *stream : default_stream(); }

[[maybe_unused]] const bool hooks_registered = [] {
  tessera::testing::before_kernels() = [] { default_stream().drain(); };
  return true;
}();

}  // namespace

extern "C" {

const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "an error"; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = tessera::testing::device_count();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  current_device().set_index(static_cast<c10::DeviceIndex>(device));
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device().index();
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = pretended_memory().allocate(bytes).release_context();
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  default_stream().drain();
  if (memory) pretended_memory().raw_deleter()(memory);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  const auto readable = [](const void* p) {
    return pretended_memory().has(p) ? pretended_memory().real(p) : const_cast<void*>(p);
  };
  std::memcpy(readable(to), readable(from), bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st(CUstream_st::Purpose::communicates);
  communicating().push_back(*stream);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto here = std::make_shared<std::promise<void>>();
  event->reached = here->get_future().share();
  event->stream = &stream_of(stream);
  event->task = stream_of(stream).add([here] { here->set_value(); });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const bool is_there =
      !event->reached.valid() || event->reached.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  return is_there ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (!event->reached.valid()) return cudaSuccess;
  if (stream_of(stream).computes() && !event->stream->computes()) {
    ++waits;
    event->stream->catch_up(event->task);
  }
  stream_of(stream).add([reached = event->reached] { reached.wait(); });
  return cudaSuccess;
}

void pretended_gpu_stands_still(bool stands_still) {
  for (CUstream_st* stream : communicating()) stream->stand_still(stands_still);
}

void pretended_gpu_catches_up() {
  for (CUstream_st* stream : communicating()) {
    stream->catch_up();
    stream->drain();
  }
}

int64_t pretended_gpu_waits() { return waits; }

}  // extern "C"
