// Products of integers whose sums fit in float32 are exact, for every library and every memory layout.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "sharding/kernels/tensors.h"
#include "tests/sharding/resident_bytes.h"

namespace tessera::matrix_kernels_test {
namespace {

using testing::resident_bytes;

at::Tensor numbers(int64_t rows, int64_t columns) { return at::randint(-3, 4, {rows, columns}, at::kFloat); }

// The same values as a contiguous tensor, transposed in memory, and as part of wider rows.
std::vector<at::Tensor> layouts(const at::Tensor& t) {
  at::Tensor part = at::zeros({t.size(0) + 3, t.size(1) + 5}).narrow(0, 1, t.size(0)).narrow(1, 2, t.size(1));
  part.copy_(t);
  return {t, t.t().contiguous().t(), part};
}

TEST(MatrixKernels, AreExactInEveryMemoryFormat) {
  const std::vector<std::array<int64_t, 3>> sizes{{3, 5, 4},       {1024, 256, 96}, {2048, 64, 192},
                                                  {128, 2048, 64}, {1000, 256, 96}, {32, 16384, 32}};
  for (const auto& [rows, k, columns] : sizes) {
    SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(k) + " x " + std::to_string(columns));
    const at::Tensor a0 = numbers(rows, k), b0 = numbers(k, columns), c0 = numbers(rows, columns);
    const at::Tensor row = numbers(1, columns)[0],
                     product = at::mm(a0.to(at::kDouble), b0.to(at::kDouble)).to(at::kFloat);
    for (const at::Tensor& a : layouts(a0))
      for (const at::Tensor& b : layouts(b0)) {
        EXPECT_TRUE(detail::multiplied(a, b).equal(product));
        EXPECT_TRUE(detail::multiplied(a, b, row).equal(product + row));
        for (at::Tensor& c : layouts(c0.clone())) {
          detail::add_product(c, a, b);
          EXPECT_TRUE(c.equal(product + c0));
          detail::multiply_into(c, a, b);
          EXPECT_TRUE(c.equal(product));
        }
      }
  }
}

// The row counts differ in every call, as with batches whose length changes with each step.
TEST(MatrixKernels, EverNewSizesTakeNoMemory) {
  const at::Tensor a = numbers(1500, 512), b = numbers(512, 32);
  detail::multiplied(a, b);
  const int64_t before = resident_bytes();
  for (int64_t rows = 1400; rows < 1500; ++rows) detail::multiplied(a.narrow(0, 0, rows), b);
  EXPECT_LT(resident_bytes() - before, 32 << 20);
}

}  // namespace
}  // namespace tessera::matrix_kernels_test
