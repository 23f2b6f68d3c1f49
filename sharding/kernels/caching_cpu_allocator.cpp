// The caching allocator of CPU tensors: one list of free blocks per size, on top of LibTorch's allocation functions.
#include "sharding/kernels/caching_cpu_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <malloc.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>

namespace tessera {
namespace detail {
namespace {

constexpr size_t alignment = 64;  // LibTorch's alignment of all CPU tensors

// The header before a tensor's bytes.
struct alignas(alignment) Block {
  size_t size;  // bytes after the header
  Block* next;  // in its list
};

// The sizes of blocks: eight per power of two, so that a block is at most an eighth larger than the request.
struct SizeClass {
  size_t index, size;

  explicit SizeClass(size_t bytes) {
    const size_t n = std::max(bytes, size_t{8 * alignment});
    const int power = std::bit_width(n - 1);  // 2^(power-1) < n <= 2^power
    const size_t step = size_t{1} << (power - 4);
    const size_t steps = (n + step - 1) / step;  // 9 to 16
    index = static_cast<size_t>(power) * 8 + (steps - 9);
    size = steps * step;
  }
};

class CachingCpuAllocator final : public c10::Allocator {
 public:
  static CachingCpuAllocator& instance() {
    static auto* memory = new CachingCpuAllocator;  // tensors may be freed after all destructors of static objects
    return *memory;
  }

  // Unlocks all lists in a child of fork(), which lacks the thread that would unlock a list. A list is consistent
  // between any two writes.
  void unlock_all() {
    for (List& list : lists_) std::construct_at(&list.mutex);
  }

  int64_t held() const { return static_cast<int64_t>(used_ + kept_); }

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    const SizeClass fit(bytes);
    Block* block = taken(fit);
    if (!block) block = made(fit.size);
    void* data = block + 1;
    c10::profiledCPUMemoryReporter().New(data, bytes);
    return {data, data, &release, c10::Device(c10::kCPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  struct List {
    std::mutex mutex;
    Block* first = nullptr;
  };

  // Returns a free block of this size, or of a larger one up to twice as large; null if there is none.
  Block* taken(const SizeClass& fit) {
    const size_t end = std::min(fit.index + 9, lists_.size());
    for (size_t i = fit.index; i < end; ++i) {
      const std::lock_guard lock(lists_[i].mutex);
      if (Block* block = lists_[i].first) {
        lists_[i].first = block->next;
        kept_ -= block->size;
        begin_use(block->size);
        return block;
      }
    }
    return nullptr;
  }

  Block* made(size_t size) {
    if (used_ + kept_ + size > max_used_ + max_used_ / 2) give_back();  // the sizes have changed
    void* memory;
    try {
      memory = c10::alloc_cpu(sizeof(Block) + size);
    } catch (const std::exception&) {
      give_back();
      memory = c10::alloc_cpu(sizeof(Block) + size);
    }
    begin_use(size);
    return new (memory) Block{size, nullptr};
  }

  void begin_use(size_t size) {
    const size_t used = used_ += size;
    for (size_t most = max_used_; used > most && !max_used_.compare_exchange_weak(most, used);) {
    }
  }

  void give_back() {
    if (kept_ == 0) return;
    for (List& list : lists_) {
      const std::lock_guard lock(list.mutex);
      while (Block* block = list.first) {
        list.first = block->next;
        kept_ -= block->size;
        c10::free_cpu(block);
      }
    }
#if defined(M_TRIM_THRESHOLD)
    malloc_trim(0);  // because mallopt made glibc keep freed memory
#endif
  }

  static void release(void* data) {
    if (!data) return;
    c10::profiledCPUMemoryReporter().Delete(data);
    CachingCpuAllocator& memory = instance();
    Block* block = static_cast<Block*>(data) - 1;
    List& list = memory.lists_[SizeClass(block->size).index];
    memory.used_ -= block->size;
    memory.kept_ += block->size;
    const std::lock_guard lock(list.mutex);
    block->next = list.first;
    list.first = block;
  }

  std::array<List, size_t{8} * 65> lists_;
  std::atomic<size_t> used_ = 0, kept_ = 0, max_used_ = 0;
};

bool is_configured_by_the_program() {
  const char* variables[] = {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"};
  return std::ranges::any_of(variables, [](const char* variable) { return std::getenv(variable) != nullptr; }) ||
         c10::GetCPUAllocator() != c10::GetDefaultCPUAllocator();
}

}  // namespace
}  // namespace detail

bool use_caching_cpu_allocator() {
  using detail::CachingCpuAllocator;
  static const bool is_used = [] {
    if (detail::is_configured_by_the_program()) return false;
    c10::SetCPUAllocator(&CachingCpuAllocator::instance());
    pthread_atfork(nullptr, nullptr, [] { CachingCpuAllocator::instance().unlock_all(); });
#if defined(M_MMAP_THRESHOLD) && defined(M_TRIM_THRESHOLD)
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, -1);
#endif
    return true;
  }();
  return is_used;
}

int64_t detail::memory_of_tensors() { return CachingCpuAllocator::instance().held(); }

}  // namespace tessera
