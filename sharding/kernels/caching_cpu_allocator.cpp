// An allocator of CPU tensors: a list of free blocks for each size, over LibTorch's own source of bytes.
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

namespace tessera::detail {
namespace {

constexpr size_t alignment = 64;  // LibTorch's, for all CPU tensors

// What lies before a tensor's bytes.
struct alignas(alignment) Block {
  size_t size;  // of the bytes after it
  Block* next;  // of those in its list
};

// The sizes of blocks: eight to each power of two, so that a block is at most an eighth larger than what was asked for.
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
    static auto* memory = new CachingCpuAllocator;  // tensors may be freed after every destructor of a static value
    return *memory;
  }

  // In a child of fork(), where no thread is left that would unlock a list. Between any two of its writes a list is in
  // order.
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

  // A free block that fits: of its own size, else of one of the next, up to twice as large; null where there is none.
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
    if (used_ + kept_ + size > max_used_ + max_used_ / 2) give_back();  // other sizes are asked for than before
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
    malloc_trim(0);  // else glibc would keep it now
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

bool is_left_alone() {
  const char* said[] = {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"};
  return std::ranges::any_of(said, [](const char* variable) { return std::getenv(variable) != nullptr; }) ||
         c10::GetCPUAllocator() != c10::GetDefaultCPUAllocator();
}

}  // namespace

void use_caching_cpu_allocator() {
  static const bool once = [] {
    if (is_left_alone()) return true;
    c10::SetCPUAllocator(&CachingCpuAllocator::instance());
    pthread_atfork(nullptr, nullptr, [] { CachingCpuAllocator::instance().unlock_all(); });
#if defined(M_MMAP_THRESHOLD) && defined(M_TRIM_THRESHOLD)  // other values, in each thread's own heap
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, -1);
#endif
    return true;
  }();
  static_cast<void>(once);
}

int64_t memory_of_tensors() { return CachingCpuAllocator::instance().held(); }

}  // namespace tessera::detail
