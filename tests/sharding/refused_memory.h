// An allocator of tensors that counts allocations, and can delay or refuse them.
#pragma once

#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>

namespace tessera::testing {

inline constexpr const char* no_memory = "no memory for this one";

// Allocates the tensors of all threads while the object exists. It counts allocations, can delay each one, and can
// refuse one.
class Memory final : public c10::Allocator {
 public:
  Memory() { c10::SetCPUAllocator(this, priority); }
  ~Memory() override { c10::SetCPUAllocator(before_, priority); }

  c10::DataPtr allocate(size_t bytes) override {
    const int64_t number = ++allocated_;
    if (number == refused_) throw std::runtime_error(no_memory);
    if (delays_) wait(std::chrono::microseconds(number * 37 % 50));
    ++live;
    void* memory = std::aligned_alloc(64, (bytes + 64) / 64 * 64);
    return {memory, memory, &free_memory, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_memory; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

  // Starts to count allocations. `delays`: delay each one; `refused`: the number of the one to refuse.
  void watch(bool delays, int64_t refused) { allocated_ = 0, delays_ = delays, refused_ = refused; }
  int64_t allocated() const { return allocated_; }

  static inline std::atomic<int64_t> live = 0;

 private:
  static constexpr uint8_t priority = 255;
  static void free_memory(void* memory) { --live, std::free(memory); }
  static void wait(std::chrono::microseconds time) {
    for (const auto end = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < end;) {
    }
  }

  c10::Allocator* before_ = c10::GetCPUAllocator();
  std::atomic<int64_t> allocated_ = 0, refused_ = -1;
  std::atomic<bool> delays_ = false;
};

}  // namespace tessera::testing
