// Streams of the pretended GPU: what is queued on one is done by its thread, in order, some time later.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>

// What a test asks of the pretended GPU. A program finds these functions by their names, since it is not linked with
// it.
extern "C" {
// Whether streams that only communicate stand still until the compute stream waits for one of their events, so that
// nothing arrives by itself; at first they do not.
void pretended_gpu_stands_still(bool stands_still);
// Carries out what they have been given so far. All processes call it at the same place.
void pretended_gpu_catches_up();
// How often the compute stream was told to wait for an event of another.
int64_t pretended_gpu_waits();
}

// CUDA leaves its streams incomplete.
struct CUstream_st {
 public:
  enum class Purpose : uint8_t { computes, communicates };
  explicit CUstream_st(Purpose purpose);
  // Returns its number, from 1.
  int64_t add(std::function<void()> task);
  // Waits until nothing is queued.
  void drain();
  // Does everything up to this task, even if it stands still; by default all that is queued.
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
  int64_t added_ = 0, begun_ = 0, may_begin_ = 0;  // numbers of tasks; the last: although it stands still
};
