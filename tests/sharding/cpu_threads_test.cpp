// TESSERA_CPU_THREADS in a program with a larger OMP_NUM_THREADS, which makes no mesh before its tests.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <thread>

#include "sharding/operations.h"
#include "sharding/redistribution/device_put.h"

namespace tessera {
namespace {

// The number of LibTorch threads after an operation.
int threads_of_torch() {
  const Array x = array({1, 2, 3}) + 1;
  EXPECT_EQ(x.shape(), Shape{3});
  return at::get_num_threads();
}

TEST(CpuThreads, AreLimitedWithoutAMesh) {
  ASSERT_EQ(at::get_num_threads(), 5);
  EXPECT_EQ(threads_of_torch(), 2);
}

TEST(CpuThreads, AreLimitedInEveryThread) {
  std::thread([] {
    EXPECT_EQ(threads_of_torch(), 2);
    const Mesh mesh = make_mesh({{"data", 4}});
    EXPECT_EQ(sum(device_put(ones({8}), NamedSharding(mesh, P{"data"}))).item<float>(), 8);
    EXPECT_EQ(at::get_num_threads(), 2);
  }).join();
}

// A number that the program sets later is kept.
TEST(CpuThreads, AreLimitedOnce) {
  EXPECT_EQ(threads_of_torch(), 2);
  at::set_num_threads(3);
  EXPECT_EQ(threads_of_torch(), 3);
  at::set_num_threads(2);
}

}  // namespace
}  // namespace tessera
