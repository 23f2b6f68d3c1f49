// Printed arrays: the type with its sharding, and values in the format of numpy 2.4.
#include "sharding/array/print.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <sstream>

#include "sharding/random/random.h"
#include "tests/sharding/law.h"

namespace tessera::print_test {
namespace {

using namespace tessera::testing;

std::string printed(const Array& x) {
  std::ostringstream out;
  out << x;
  return out.str();
}

std::string values(const at::Tensor& t) { return detail::values_text(t); }

TEST(Print, ValuesAsNumpy) {
  const at::Tensor grid = at::arange(6, at::kInt).view({2, 3}) - 3;
  EXPECT_EQ(values(grid), "[[-3, -2, -1],\n [ 0,  1,  2]]");
  EXPECT_EQ(values(at::tensor({1.f, 2.5f, -3.f, 100.125f}).view({2, 2})), "[[  1.   ,   2.5  ],\n [ -3.   , 100.125]]");
  EXPECT_EQ(values(at::arange(5, at::kFloat) / 3), "[0.        , 0.33333334, 0.6666667 , 1.        , 1.3333334 ]");
  EXPECT_EQ(values(at::arange(4, at::kDouble) / 3), "[0.        , 0.33333333, 0.66666667, 1.        ]");
  EXPECT_EQ(values(at::tensor({1e-5f, 1.f, 2e10f})), "[1.e-05, 1.e+00, 2.e+10]");
  EXPECT_EQ(values(at::tensor({1e100, 1.5}, at::kDouble)), "[1.0e+100, 1.5e+000]");
  EXPECT_EQ(values(at::tensor({NAN, INFINITY, -INFINITY, 0.1f})), "[ nan,  inf, -inf,  0.1]");
  EXPECT_EQ(values(at::tensor({0.5f, 501.f})), "[5.00e-01, 5.01e+02]");
  EXPECT_EQ(values(at::tensor({0.001f, 0.00025f})), "[0.001  , 0.00025]");
  EXPECT_EQ(values(at::zeros({3})), "[0., 0., 0.]");
  EXPECT_EQ(values(at::zeros({0, 3})), "[]");
  EXPECT_EQ(values(at::scalar_tensor(1.5f)), "1.5");
}

TEST(Print, EveryElementType) {
  EXPECT_EQ(values(at::tensor({1, 0, 0}).to(at::kBool)), "[ True, False, False]");
  EXPECT_EQ(values(at::tensor({0, 7, 255}).to(at::kByte)), "[  0,   7, 255]");
  EXPECT_EQ(values(at::tensor({int64_t{1} << 40, int64_t{-1}})), "[1099511627776,            -1]");
  EXPECT_EQ(values(at::tensor({0.1, 3.14159}).to(at::kHalf)), "[0.1 , 3.14]");
  EXPECT_EQ(values(at::tensor({0.1, 3.14159}).to(at::kBFloat16)), "[0.1 , 3.14]");
}

TEST(Print, LongRowsAndManyDims) {
  EXPECT_EQ(values(at::arange(30, at::kFloat) / 4),
            "[0.  , 0.25, 0.5 , 0.75, 1.  , 1.25, 1.5 , 1.75, 2.  , 2.25, 2.5 , 2.75,\n"
            " 3.  , 3.25, 3.5 , 3.75, 4.  , 4.25, 4.5 , 4.75, 5.  , 5.25, 5.5 , 5.75,\n"
            " 6.  , 6.25, 6.5 , 6.75, 7.  , 7.25]");
  EXPECT_EQ(values(at::arange(12, at::kInt).view({2, 2, 3})),
            "[[[ 0,  1,  2],\n  [ 3,  4,  5]],\n\n [[ 6,  7,  8],\n  [ 9, 10, 11]]]");
  EXPECT_EQ(values(at::arange(2000, at::kInt)), "[   0,    1,    2, ..., 1997, 1998, 1999]");
  const std::string grid = values(at::arange(2500, at::kFloat).view({50, 50}) / 2);
  EXPECT_TRUE(grid.starts_with("[[0.0000e+00, 5.0000e-01, 1.0000e+00, ..., 2.3500e+01, 2.4000e+01,\n  2.4500e+01],\n"));
  EXPECT_TRUE(
      grid.ends_with(" ...,\n [1.1750e+03, 1.1755e+03, 1.1760e+03, ..., 1.1985e+03, 1.1990e+03,\n  1.1995e+03],\n"
                     " [1.2000e+03, 1.2005e+03, 1.2010e+03, ..., 1.2235e+03, 1.2240e+03,\n  1.2245e+03],\n"
                     " [1.2250e+03, 1.2255e+03, 1.2260e+03, ..., 1.2485e+03, 1.2490e+03,\n  1.2495e+03]]"));
}

TEST(Print, TheTypedShardingComesFirst) {
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 2}, {"pipe", 2}});
  const Array x = device_put(array<float>({1, 2, 3, 4}), NamedSharding(mesh, P{"data"}));
  EXPECT_EQ(printed(x), "float32[4@data] [1., 2., 3., 4.]");
  EXPECT_EQ(printed(sum(x)), "float32[]{U:data} 10. (a partial sum over data, reduced for printing)");
  EXPECT_EQ(printed(reshape(x, {2, 2})), "float32[2@data,2]\n[[1., 2.],\n [3., 4.]]");
  EXPECT_EQ(printed(normal(Key(0), {1 << 20})), "float32[1048576] a lazy initializer, without values yet");
  EXPECT_EQ(printed(Array()), "absent");
}

}  // namespace
}  // namespace tessera::print_test
