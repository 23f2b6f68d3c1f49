// An allocator of CPU tensors that fails as LibTorch's allocators do: above a limit, or at one allocation.
#pragma once

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>

namespace tessera::testing {

enum class Failure { of_cpu, of_accelerator, bad_alloc };

// Allocates the tensors of all threads while the object exists.
class LimitedMemory final : public c10::Allocator {
 public:
  explicit LimitedMemory(Failure failure = Failure::of_cpu) : failure_(failure) {
    c10::SetCPUAllocator(this, priority);
  }
  ~LimitedMemory() override { c10::SetCPUAllocator(before_, priority); }

  c10::DataPtr allocate(size_t n) override {
    const auto bytes = static_cast<int64_t>(n);
    if (++allocated_ == refused_ || live + bytes > limit_) fail(bytes);
    const int64_t now = live += bytes;
    for (int64_t peak = peak_; now > peak && !peak_.compare_exchange_weak(peak, now);) continue;
    auto* memory = static_cast<int64_t*>(std::aligned_alloc(64, (n + 64 + 63) / 64 * 64));
    *memory = bytes;
    return {memory + 8, memory, &release, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  // Starts to count allocations and the peak. `refused`: the number of an allocation that fails.
  void count(int64_t refused = -1) { allocated_ = 0, refused_ = refused, peak_ = live.load(); }
  void limit(int64_t bytes = std::numeric_limits<int64_t>::max()) { limit_ = bytes; }
  int64_t allocated() const { return allocated_; }
  int64_t peak() const { return peak_; }

  static inline std::atomic<int64_t> live = 0;  // bytes

 private:
  static constexpr uint8_t priority = 255;
  static void release(void* memory) {
    live -= *static_cast<int64_t*>(memory);
    std::free(memory);
  }
  void fail(int64_t bytes) const {
    if (failure_ == Failure::bad_alloc) throw std::bad_alloc();
    if (failure_ == Failure::of_accelerator)
      TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate 2.00 KiB. GPU 0 has ...");
    TORCH_CHECK(false, "DefaultCPUAllocator: can't allocate memory: you tried to allocate ", bytes, " bytes.");
  }

  const Failure failure_;
  c10::Allocator* before_ = c10::GetCPUAllocator();
  std::atomic<int64_t> allocated_ = 0, refused_ = -1, peak_ = 0;
  std::atomic<int64_t> limit_ = std::numeric_limits<int64_t>::max();
};

}  // namespace tessera::testing
