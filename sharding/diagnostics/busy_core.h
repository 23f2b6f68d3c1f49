// BusyCore: a core that computes beside the calling thread, as a loader does, which side_by_side leaves alone.
#pragma once

#include <atomic>

namespace tessera::detail {

// One for each thread that makes batches at the moment.
class BusyCore {
 public:
  BusyCore() { count_.fetch_add(1, std::memory_order_relaxed); }
  ~BusyCore() { count_.fetch_sub(1, std::memory_order_relaxed); }
  BusyCore(const BusyCore&) = delete;
  BusyCore& operator=(const BusyCore&) = delete;

  static int count() { return count_.load(std::memory_order_relaxed); }

 private:
  static inline std::atomic<int> count_ = 0;
};

}  // namespace tessera::detail
