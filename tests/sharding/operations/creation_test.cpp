// Created arrays have the values of jax.numpy, also when they are created in blocks with a sharding.
#include "sharding/operations/shape/creation.h"

#include <gtest/gtest.h>

#include <functional>

#include "sharding/operations.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "tests/sharding/expect_error.h"

namespace tessera::creation_test {
namespace {

using testing::expect_error;
using Values = std::vector<float>;

Values values(const Array& x) { return astype(x, float32).to_host<float>(); }

TEST(CreationTest, Sequences) {
  EXPECT_EQ(arange(3).dtype(), int32);
  EXPECT_EQ(values(arange(3)), (Values{0, 1, 2}));
  EXPECT_EQ(values(arange(5, 0, -2)), (Values{5, 3, 1}));
  EXPECT_EQ(arange(0, 1, 0.25).dtype(), float32);
  EXPECT_EQ(values(arange(0, 1, 0.25)), (Values{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(arange(2, {.dtype = float64}).dtype(), float64);
  EXPECT_EQ(arange(2, 2).size(), 0);
  EXPECT_EQ(arange(3, 2).size(), 0);
  EXPECT_EQ(values(linspace(0, 1, 5)), (Values{0, 0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(values(linspace(0, 1, 4, {.endpoint = false})), (Values{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(values(linspace(3, 9, 1)), Values{3});
  expect_error(ErrorKind::invalid_argument, "[arange] a step of 0", [] { arange(0, 1, 0); });
}

TEST(CreationTest, Diagonals) {
  EXPECT_EQ(values(eye(2)), (Values{1, 0, 0, 1}));
  EXPECT_EQ(values(eye(2, {.columns = 3, .k = 1})), (Values{0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(values(tri(2, {.columns = 3, .k = -1})), (Values{0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(values(tril(ones({2, 3}))), (Values{1, 0, 0, 1, 1, 0}));
  EXPECT_EQ(values(triu(ones({2, 3}), 1)), (Values{0, 1, 1, 0, 0, 1}));
  EXPECT_EQ(values(broadcasted_iota(int32, {2, 3}, 1)), (Values{0, 1, 2, 0, 1, 2}));
  expect_error(ErrorKind::shape_mismatch, "[tril] given float32[3], expected two dims", [] { tril(ones({3})); });
  expect_error(ErrorKind::invalid_argument, "[broadcasted_iota] dim 2", [] { broadcasted_iota(int32, {2, 3}, 2); });
}

// With every sharding, the values equal those of the unplaced array.
void expect_same_when_placed(const std::function<Array(const std::optional<NamedSharding>&)>& make) {
  const Array whole = make(std::nullopt);
  for (const bool replicas : {false, true}) {
    const Mesh mesh = make_mesh({{"x", 2}, {"y", 2}}, {.private_replicas = replicas});
    std::vector<PartitionSpec> specs{P{}, P{"x"}, P{{"y", "x"}}, P{"x"}.unreduced({"y"})};
    if (whole.ndim() == 2) specs.insert(specs.end(), {P{none, "x"}, P{"y", "x"}, P{none, {"x", "y"}}});
    for (const PartitionSpec& spec : specs) {
      SCOPED_TRACE(spec.to_string());
      const Array placed = make(NamedSharding(mesh, spec));
      EXPECT_EQ(placed.sharding().spec(), spec);
      EXPECT_EQ(placed.dtype(), whole.dtype());
      EXPECT_EQ(values(placed), values(whole));
    }
  }
}

TEST(CreationTest, EveryDeviceMakesItsOwnBlock) {
  using Sharding = std::optional<NamedSharding>;
  expect_same_when_placed([](const Sharding& s) { return arange(3, 19, 2, {.out_sharding = s}); });
  expect_same_when_placed([](const Sharding& s) { return linspace(-1, 1, 8, {.out_sharding = s}); });
  expect_same_when_placed([](const Sharding& s) { return eye(4, {.columns = 8, .k = 2, .out_sharding = s}); });
  expect_same_when_placed([](const Sharding& s) { return tri(8, {.k = -1, .dtype = int32, .out_sharding = s}); });
  expect_same_when_placed([](const Sharding& s) { return broadcasted_iota(int32, {4, 8}, 0, s); });
  expect_same_when_placed([](const Sharding& s) { return full({4, 8}, 2.5, {.out_sharding = s}); });
  expect_same_when_placed([](const Sharding& s) { return ones({8}, {.dtype = bfloat16, .out_sharding = s}); });
}

TEST(CreationTest, LikeAnArrayIsPlacedLikeIt) {
  const Mesh mesh = make_mesh({{"x", 2}, {"y", 2}});
  const Array x = ones({4, 8}, {.dtype = bfloat16, .out_sharding = NamedSharding(mesh, P{"x"}.unreduced({"y"}))});
  EXPECT_EQ(zeros_like(x).type_string(), "bfloat16[4@x,8]");
  EXPECT_EQ(values(ones_like(x)), Values(32, 1));
  EXPECT_EQ(values(full_like(x, 2.5)), Values(32, 2.5));
  EXPECT_EQ(zeros_like(x, {.dtype = int32}).dtype(), int32);
  EXPECT_FALSE(zeros_like(ones({2})).is_committed());
}

}  // namespace
}  // namespace tessera::creation_test
