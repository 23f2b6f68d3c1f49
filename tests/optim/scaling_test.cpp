// scale() multiplies with the rounding of at::_foreach_mul, whatever the tensors are.
#include "optim/formulas/scaling.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "sharding/array/array_impl.h"

namespace tessera::optim::detail::scaling_test {
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

TEST(Scale, RoundsAsLibTorchDoes) {
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

}  // namespace
}  // namespace tessera::optim::detail::scaling_test
