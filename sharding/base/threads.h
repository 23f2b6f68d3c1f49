// The library's threads: a function that stops the thread pool, and a count of other busy threads.
#pragma once

#include <atomic>

namespace tessera::detail {

// Stops the workers of kernels/parallel_for.h; null while there are none. tessera::finalize calls it.
inline std::atomic<void (*)()> stop_workers = nullptr;

// Counts the threads that currently make batches: parallel_for leaves one core free for each BackgroundThreadCount.
class BackgroundThreadCount {
 public:
  BackgroundThreadCount() { count_.fetch_add(1, std::memory_order_relaxed); }
  ~BackgroundThreadCount() { count_.fetch_sub(1, std::memory_order_relaxed); }
  BackgroundThreadCount(const BackgroundThreadCount&) = delete;
  BackgroundThreadCount& operator=(const BackgroundThreadCount&) = delete;

  static int count() { return count_.load(std::memory_order_relaxed); }

 private:
  static inline std::atomic<int> count_ = 0;
};

}  // namespace tessera::detail
