// The memory of the pretended device, readable only by its kernels.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tessera::testing {

// The device type, chosen at compile time: PrivateUse1 (a separate type) or CUDA (in place of real GPUs).
constexpr c10::DeviceType pretended_kind = c10::DeviceType::TESSERA_PRETENDED_KIND;

// Returns the number of devices in this process: TESSERA_PRETENDED_DEVICES, else 1.
int device_count();
// Returns the current device of this thread.
c10::Device& current_device();

// Returns the function that each kernel calls before it touches memory. The initial function does nothing.
void (*&before_kernels())();

// One file in memory that is mapped twice. The addresses in tensors are not readable; kernels read at a fixed offset
// from them.
class PretendedMemory : public c10::Allocator {
 public:
  PretendedMemory();
  // Returns memory that is full of NaNs.
  c10::DataPtr allocate(size_t n) override;
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t n) const override;

  // Returns the address at which a kernel can read this pointer's memory, after a call of before_kernels(), which may
  // wait.
  char* real(const void* shown) const;
  // Returns the same address without that call: the caller has waited.
  char* real_now(const void* shown) const;
  // Returns the largest number of bytes lent at the same time. It grows only when fresh memory is taken.
  size_t used() const { return used_; }
  bool has(const void* p) const { return p >= shown_ && p < shown_ + bytes; }

  // From now on, allocates from this pool: only the pool reuses its memory. 0: the common pool.
  void take_for(int pool) { pool_ = pool; }
  // Returns the memory of a pool to the common pool.
  void dissolve(int pool);
  std::string contents() const { return {real_, used_}; }
  void restore(const std::string& contents) { contents.copy(real_, contents.size()); }

 private:
  static constexpr size_t bytes = size_t{16} << 30;  // taken from the system page by page, at the first use

  static char* map(int file, int access);
  static size_t size_of(size_t n);
  static void give_back(void* memory);

  char *shown_, *real_;
  std::mutex mutex_;
  size_t used_ = 0, lent_ = 0;
  int pool_ = 0;
  std::map<std::pair<int, size_t>, std::vector<char*>> free_;  // free blocks by pool and size
  struct Sizes {
    size_t taken, asked_for;
    int pool;
  };
  std::map<char*, Sizes> sizes_;
};

PretendedMemory& pretended_memory();

}  // namespace tessera::testing
