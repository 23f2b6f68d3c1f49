// Arrays whose first use is in several threads at once.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "sharding/operations.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::shared_arrays_test {
namespace {

// The results of f in several threads that start together.
template <class F>
std::vector<std::vector<float>> at_once(const F& f) {
  constexpr int n = 3;
  std::vector<std::vector<float>> got(n);
  std::vector<std::thread> threads;
  std::atomic<int> ready = 0;
  for (int k = 0; k < n; ++k)
    threads.emplace_back([&, k] {
      for (++ready; ready < n;) std::this_thread::yield();
      got[k] = f().template to_host<float>();
    });
  for (std::thread& t : threads) t.join();
  return got;
}

TEST(SharedArrays, MayBeUsedFirstByManyThreads) {
  const Mesh mesh = make_mesh({{"data", 2}});
  const Array placed = device_put(ones({4, 8}), NamedSharding(mesh, P{"data"}));
  for (uint32_t i = 0; i < 100; ++i) {
    const Array drawn = normal(Key(i), {8, 8}), filled = ones({4, 8}), given = array<float>(std::vector<float>(8, i));
    const auto apart = at_once([&] { return matmul(filled, drawn) + given; });
    const auto beside = at_once([&] { return matmul(placed, drawn) + given; });
    for (int k = 0; k < 3; ++k) {
      ASSERT_EQ(apart[k], apart[0]) << i;
      ASSERT_EQ(beside[k], beside[0]) << i;
    }
    EXPECT_FALSE(drawn.is_lazy());
  }
}

}  // namespace
}  // namespace tessera::shared_arrays_test
