// Counts the memory of tensors, as LibTorch reports it to a profiler.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace tessera::testing {

// Allocations and frees of this thread while the object exists. Memory allocated before the first such object is not
// counted.
class Allocations {
 public:
  Allocations() : seen_(std::make_shared<Seen>()), guard_(c10::DebugInfoKind::PROFILER_STATE, seen_) {}

  int64_t live() const { return seen_->live; }  // bytes allocated and not yet freed
  int64_t peak() const { return seen_->peak; }  // the maximum of live()
  const std::vector<int64_t>& sizes() const { return seen_->sizes; }
  int64_t largest() const { return sizes().empty() ? 0 : *std::max_element(sizes().begin(), sizes().end()); }

 private:
  struct Seen : c10::MemoryReportingInfoBase {
    bool memoryProfilingEnabled() const override { return true; }
    void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
      if (bytes > 0) sizes.push_back(bytes);
      live += bytes;
      peak = std::max(peak, live);
    }

    std::vector<int64_t> sizes;
    int64_t live = 0, peak = 0;
  };

  std::shared_ptr<Seen> seen_;
  c10::DebugInfoGuard guard_;
};

}  // namespace tessera::testing
