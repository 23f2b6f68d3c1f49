// Streams of the pretended GPU: what is queued on one is done by its thread, in order, some time later.
#pragma once

#include <cuda_runtime_api.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

// CUDA leaves its streams incomplete.
struct CUstream_st {
 public:
  CUstream_st();
  void add(std::function<void()> task);
  // Waits until nothing is queued.
  void drain();

 private:
  [[noreturn]] void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool is_busy_ = false;
};
