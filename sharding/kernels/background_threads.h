// BackgroundThreadCount: counts threads that compute in the background, whose cores parallel_for leaves free.
#pragma once

#include <atomic>

namespace tessera::detail {

// One for each thread that makes batches at the moment.
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
