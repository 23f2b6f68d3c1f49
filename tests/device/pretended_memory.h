// The memory of the pretended device, which its kernels alone can read.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tessera::testing {

// "PrivateUse1", a device of its own, or "CUDA", in the place of GPUs: as it is compiled.
constexpr c10::DeviceType pretended_kind = c10::DeviceType::TESSERA_PRETENDED_KIND;

// How many of them a process sees: TESSERA_PRETENDED_DEVICES, else 1.
int device_count();
// The one that this thread uses.
c10::Device& current_device();

// What a kernel must wait for before it touches memory; nothing at first.
void (*&before_kernels())();

// One file in memory, mapped twice: where its pointers point nobody may read, a fixed distance away its kernels do.
class PretendedMemory : public c10::Allocator {
 public:
  PretendedMemory();
  // Full of NaNs.
  c10::DataPtr allocate(size_t n) override;
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t n) const override;

  // Where a kernel finds what this pointer of a tensor stands for, once it may.
  char* real(const void* shown) const;
  // At once: whoever asks has waited.
  char* real_now(const void* shown) const;
  // What has been lent out at the same time, of all sizes: memory that nobody had before grows it.
  size_t used() const { return used_; }
  bool has(const void* p) const { return p >= shown_ && p < shown_ + bytes; }

  // From here on memory is taken for a pool of its own, which alone lends it again; 0: that of all.
  void take_for(int pool) { pool_ = pool; }
  // What has been taken for a pool is everybody's.
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
  std::map<std::pair<int, size_t>, std::vector<char*>> free_;  // by pool and size
  struct Sizes {
    size_t taken, asked_for;
    int pool;
  };
  std::map<char*, Sizes> sizes_;
};

PretendedMemory& pretended_memory();

}  // namespace tessera::testing
