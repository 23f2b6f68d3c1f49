// Streams of the pretended GPU: a thread per stream runs the queued tasks in order, with a delay.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>

// Controls of the pretended GPU. Programs look them up by name, since they are not linked with it.
extern "C" {
// If true, communication streams run only as far as the compute stream waits for one of their events. Default: false.
void pretended_gpu_stands_still(bool stands_still);
// Runs everything queued on the communication streams so far. All processes call it at the same point.
void pretended_gpu_catches_up();
// Returns how often the compute stream had to wait for an event of another stream.
int64_t pretended_gpu_waits();
}

// A CUDA stream. CUDA only declares this type.
struct CUstream_st {
 public:
  enum class Purpose : uint8_t { computes, communicates };
  explicit CUstream_st(Purpose purpose);
  // Queues a task and returns its number, counted from 1.
  int64_t add(std::function<void()> task);
  // Waits until nothing is queued.
  void drain();
  // Runs the tasks up to this one (default: all queued tasks), even while the stream is stopped.
  void catch_up(std::optional<int64_t> task = {});
  void stand_still(bool stands_still);
  bool computes() const { return purpose_ == Purpose::computes; }

 private:
  [[noreturn]] void work();

  const Purpose purpose_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool is_busy_ = false, stands_still_ = false;
  int64_t added_ = 0, begun_ = 0, may_begin_ = 0;  // numbers of tasks; may_begin_: despite stands_still_
};
