// The caching allocator of CPU tensors: reuse of freed memory, its bound, threads and forks.
#include "sharding/kernels/caching_cpu_allocator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/sharding/resident_bytes.h"

namespace tessera::caching_cpu_allocator_test {
namespace {

using detail::memory_of_tensors;
using testing::resident_bytes;

class CachingCpuAllocator : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!use_caching_cpu_allocator()) GTEST_SKIP() << "the environment configures glibc's allocator";
  }
};

at::Tensor of_bytes(int64_t bytes) { return at::empty({bytes}, at::kByte); }

TEST_F(CachingCpuAllocator, IsTheNextTensorsOfItsSize) {
  for (const int64_t bytes : {1, 64, 100, 513, 4096, 4097, 100'000, 3'000'000}) {
    const void* first = of_bytes(bytes).data_ptr();
    const int64_t held = memory_of_tensors();
    const at::Tensor again = of_bytes(bytes);
    EXPECT_EQ(again.data_ptr(), first) << bytes;
    EXPECT_EQ(memory_of_tensors(), held) << bytes;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0) << bytes;
  }
}

TEST_F(CachingCpuAllocator, EveryByteIsTheTensorsOwn) {
  std::vector<at::Tensor> tensors;
  for (int64_t bytes = 1; bytes < 5000; ++bytes) tensors.push_back(at::full({bytes}, bytes % 251, at::kByte));
  for (int64_t bytes = 1; bytes < 5000; bytes += 2) tensors[static_cast<size_t>(bytes - 1)].reset();
  for (int64_t bytes = 1; bytes < 5000; bytes += 2)
    tensors[static_cast<size_t>(bytes - 1)] = at::full({bytes}, bytes % 251, at::kByte);
  for (int64_t bytes = 1; bytes < 5000; ++bytes)
    ASSERT_TRUE(at::all(tensors[static_cast<size_t>(bytes - 1)] == bytes % 251).item<bool>()) << bytes;
}

TEST_F(CachingCpuAllocator, GoesFromThreadToThread) {
  constexpr int64_t bytes = 7'777'777;
  const void* first = nullptr;
  std::thread([&] { first = of_bytes(bytes).data_ptr(); }).join();
  EXPECT_EQ(of_bytes(bytes).data_ptr(), first);
}

TEST_F(CachingCpuAllocator, IsOneThreadsAtATime) {
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int64_t number = 0; number < 4; ++number)
    threads.emplace_back([number, &wrong] {
      for (int64_t i = 0; i < 2000; ++i) {
        const at::Tensor mine = of_bytes(1 + i * 37 % 3000);
        std::memset(mine.data_ptr(), static_cast<int>(number), static_cast<size_t>(mine.numel()));
        const auto* bytes = static_cast<const uint8_t*>(mine.const_data_ptr());
        wrong[static_cast<size_t>(number)] +=
            std::any_of(bytes, bytes + mine.numel(), [number](uint8_t byte) { return byte != number; });
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

// Every tensor has a new size: cached memory of old sizes is returned.
TEST_F(CachingCpuAllocator, IsBoundedByWhatTensorsHadAtOnce) {
  constexpr int64_t step = 8 << 20, sizes = 60;
  for (int64_t i = 1; i <= sizes; ++i) of_bytes(i * step);
  EXPECT_LT(memory_of_tensors(), 3 * sizes * step);  // all sizes together are 30 of the largest
}

TEST_F(CachingCpuAllocator, GoesBackToTheSystem) {
  constexpr int64_t mega = 1 << 20, many = 300;
  std::vector<at::Tensor> tensors;
  for (int64_t i = 0; i < many; ++i) tensors.push_back(at::ones({mega}, at::kByte));
  const int64_t resident = resident_bytes(), held = memory_of_tensors();
  tensors.clear();
  EXPECT_EQ(memory_of_tensors(), held);
  for (int64_t i = 0; i < 60 && memory_of_tensors() >= held; ++i) of_bytes((100 + 9 * i) * mega);  // no page is touched
  EXPECT_LT(resident_bytes(), resident - many * mega / 2);
}

// A forked child lacks its parent's other threads. A lock that one of them held would never be released.
TEST_F(CachingCpuAllocator, IsThereInAForkedChild) {
  std::atomic<bool> done = false;
  std::vector<std::thread> threads;
  for (int64_t number = 0; number < 2; ++number)
    threads.emplace_back([&] {
      for (int64_t i = 0; !done; ++i) of_bytes(1 + i % 5000);
    });
  int lost = 0;
  for (int i = 0; i < 100 && lost == 0; ++i) {
    const pid_t child = fork();
    ASSERT_NE(child, -1);
    if (child == 0) {
      alarm(20);
      for (int64_t bytes = 1; bytes < 5000; bytes += 50) of_bytes(bytes);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    lost += status != 0;
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lost, 0);
}

TEST_F(CachingCpuAllocator, OfATensorThatHasNoneChangesNothing) {
  const int64_t held = memory_of_tensors();
  EXPECT_EQ(of_bytes(0).data_ptr(), nullptr);
  EXPECT_EQ(memory_of_tensors(), held);
}

TEST_F(CachingCpuAllocator, TooLargeATensorIsLibTorchsError) {
  EXPECT_THROW(of_bytes(int64_t{1} << 60), c10::Error);
  EXPECT_EQ(at::sum(at::ones({1000})).item<double>(), 1000);
}

}  // namespace
}  // namespace tessera::caching_cpu_allocator_test
