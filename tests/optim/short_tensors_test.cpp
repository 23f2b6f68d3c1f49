// Short tensors past the dispatcher: LibTorch's bits, whatever the tensors are.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "optim/formulas/scaling.h"
#include "sharding/array/array_impl.h"
#include "sharding/kernels/small_tensors.h"

namespace tessera::optim::detail::short_tensors_test {
namespace {

std::vector<at::Tensor> tensors() {
  const auto waves = [](int64_t n, at::ScalarType type) { return (at::arange(n) * 1.7).sin().to(type); };
  std::vector<at::Tensor> all;
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16})
    for (const int64_t n : {0, 1, 7, 64, 100'000}) all.push_back(waves(n, type));
  all.push_back(waves(48, at::kFloat).view({6, 8}).t());
  all.push_back(waves(48, at::kFloat).view({6, 8}).narrow(0, 2, 3));
  all.push_back(at::tensor({std::numeric_limits<float>::infinity(), -0.0f, 1e-42f, NAN, 3e38f}));
  all.push_back(at::tensor(2.5f));
  return all;
}

void expect_same(const at::Tensor& given, const at::Tensor& expected) {
  EXPECT_EQ(given.sizes(), expected.sizes());
  EXPECT_EQ(given.scalar_type(), expected.scalar_type());
  EXPECT_TRUE(at::allclose(given, expected, 0, 0, /*equal_nan=*/true)) << given << expected;
}

TEST(ShortTensors, AreMultipliedWithLibTorchsBits) {
  for (const bool is_shared : {false, true})
    for (const double factor : {0.3, -1.0, 1e-30, std::numeric_limits<double>::quiet_NaN()})
      for (const at::Tensor& t : tensors()) {
        Array given = from_tensor(t.clone());
        const Array other = is_shared ? given : Array();
        scale({&given}, factor);
        expect_same(given.impl()->local[0], at::_foreach_mul({t}, factor)[0]);
        if (is_shared) expect_same(other.impl()->local[0], t);
      }
}

TEST(ShortTensors, AreCopiedIntoMemoryOfTheirOwn) {
  for (const at::Tensor& t : tensors()) {
    const at::Tensor copy = tessera::detail::copy_of(t);
    expect_same(copy, t);
    EXPECT_TRUE(copy.is_contiguous());
    EXPECT_TRUE(copy.storage().unsafeGetStorageImpl()->resizable());
    EXPECT_TRUE(t.numel() == 0 || copy.data_ptr() != t.data_ptr());
  }
}

TEST(ShortTensors, AreViewedJoinedAndTransposedAsByLibTorch) {
  using namespace tessera::detail;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    for (const bool is_recorded : {false, true}) {
      const at::Tensor made = (at::arange(8 * 6 * 4) * 1.7).sin().view({8, 6, 4}).to(type);
      const at::Tensor t = is_recorded ? made.requires_grad_(true) : made, other = t.transpose(0, 2);
      for (const at::Tensor& x : {t, other, t.narrow(1, 2, 2)})
        for (int dim = 0; dim < 3; ++dim) {
          const int64_t half = x.size(dim) / 2;
          expect_same(block(x, dim, 1, 2), x.narrow(dim, half, half));
          expect_same(contiguous_block(x, dim, 1, 2), x.narrow(dim, half, half));
          EXPECT_TRUE(contiguous_block(x, dim, 1, 2).is_contiguous());
          expect_same(joined({x, x, x}, dim), at::cat({x, x, x}, dim));
          expect_same(reshaped(x, {x.size(0) * x.size(1), x.size(2)}), x.reshape({-1, x.size(2)}));
          expect_same(transposed(x.select(dim, 0)), x.select(dim, 0).t());
          expect_same(transposed_copy(x.select(dim, 0)), x.select(dim, 0).t());
          EXPECT_EQ(block(x, dim, 0, 2).requires_grad(), is_recorded);
          EXPECT_EQ(joined({x, x}, dim).requires_grad(), is_recorded);
          EXPECT_EQ(transposed_copy(x.select(dim, 0)).requires_grad(), is_recorded);
        }
      EXPECT_TRUE(block(t, 1, 0, 2).is_alias_of(t));
      EXPECT_TRUE(reshaped(t, {48, 4}).is_alias_of(t));
    }
}

}  // namespace
}  // namespace tessera::optim::detail::short_tensors_test
