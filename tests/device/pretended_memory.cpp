// Allocates the memory of the pretended device in powers of two, from a file that is mapped twice.
#include "tests/device/pretended_memory.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace tessera::testing {

int device_count() {
  const char* given = std::getenv("TESSERA_PRETENDED_DEVICES");
  return given ? std::atoi(given) : 1;
}

c10::Device& current_device() {
  static thread_local c10::Device device(pretended_kind, 0);
  return device;
}

void (*&before_kernels())() {
  static void (*wait)() = [] {};
  return wait;
}

PretendedMemory& pretended_memory() {
  static auto* memory = new PretendedMemory;
  return *memory;
}

PretendedMemory::PretendedMemory() {
  const int file = memfd_create("pretended device", 0);
  if (file < 0 || ftruncate(file, bytes) != 0) std::abort();
  shown_ = map(file, PROT_NONE), real_ = map(file, PROT_READ | PROT_WRITE);
  close(file);
}

char* PretendedMemory::map(int file, int access) {
  void* p = mmap(nullptr, bytes, access, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (p == MAP_FAILED) std::abort();
  return static_cast<char*>(p);
}

size_t PretendedMemory::size_of(size_t n) {
  size_t size = 64;
  while (size < n) size *= 2;
  return size;
}

c10::DataPtr PretendedMemory::allocate(size_t n) {
  const size_t size = size_of(n);
  std::unique_lock lock(mutex_);
  std::vector<char*>& free = free_[{pool_, size}];
  char* memory = nullptr;
  if (!free.empty()) {
    memory = free.back();
    free.pop_back();
  } else {
    TORCH_CHECK(used_ + size <= bytes, "the pretended device has no memory left");
    memory = shown_ + used_;
    used_ += size;
  }
  sizes_[memory] = {size, n, pool_};
  lent_ += n;
  const c10::Device device = current_device();
  c10::reportMemoryUsageToProfiler(memory, static_cast<int64_t>(n), lent_, used_, device);  // as all allocators do
  lock.unlock();
  std::memset(real(memory), 0xff, size);
  return {memory, memory, &give_back, device};
}

void PretendedMemory::give_back(void* p) {
  PretendedMemory& m = pretended_memory();
  std::lock_guard lock(m.mutex_);
  const auto found = m.sizes_.find(static_cast<char*>(p));
  const auto [taken, asked_for, pool] = found->second;
  m.free_[{pool, taken}].push_back(found->first);
  m.lent_ -= asked_for;
  c10::reportMemoryUsageToProfiler(p, -static_cast<int64_t>(asked_for), m.lent_, m.used_, current_device());
  m.sizes_.erase(found);
}

void PretendedMemory::dissolve(int pool) {
  const std::lock_guard lock(mutex_);
  for (auto& [memory, sizes] : sizes_)
    if (sizes.pool == pool) sizes.pool = 0;
  std::map<size_t, std::vector<char*>> free;
  for (auto& [key, blocks] : free_)
    if (key.first == pool) free[key.second].swap(blocks);
  for (auto& [size, blocks] : free) {
    std::vector<char*>& all = free_[{0, size}];
    all.insert(all.end(), blocks.begin(), blocks.end());
  }
}

void PretendedMemory::copy_data(void* to, const void* from, size_t n) const { std::memcpy(real(to), real(from), n); }

char* PretendedMemory::real(const void* shown) const {
  before_kernels()();
  return real_now(shown);
}

char* PretendedMemory::real_now(const void* shown) const {
  return shown ? const_cast<char*>(static_cast<const char*>(shown)) + (real_ - shown_) : nullptr;
}

}  // namespace tessera::testing
