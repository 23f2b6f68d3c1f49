// The edges of what arrays take: forms that no parameter has, sizes that no memory has, types that no kernel has.
#include <gtest/gtest.h>

#include <limits>

#include "sharding/device_put.h"
#include "sharding/operations.h"
#include "sharding/tape.h"
#include "tests/sharding/expect_error.h"

namespace tessera {
namespace {

using testing::expect_error;

// d sum(x w) / dw for w given in this form; x is 4 by 3, all ones.
std::vector<float> gradient_of(const PartitionSpec& form, bool private_replicas) {
  const Mesh mesh = make_mesh({{"a", 2}}, {.private_replicas = private_replicas});
  const Array x = device_put(ones({4, 3}), NamedSharding(mesh, P{"a"}));
  Tape tape({device_put(ones({3}), NamedSharding(mesh, form))});
  return tape.gradients(sum(x * tape.shadows()[0]))[0].to_host<float>();
}

TEST(EdgeTest, TheGradientOfAPendingSumOrAReducedArrayIsAValue) {
  for (const bool private_replicas : {false, true})
    for (const PartitionSpec& form : {P{}, P{}.unreduced({"a"}), P{}.reduced({"a"})})
      EXPECT_EQ(gradient_of(form, private_replicas), (std::vector<float>{4, 4, 4}))
          << form.to_string() << (private_replicas ? " private" : "");
}

TEST(EdgeTest, ParametersAreNoPendingSums) {
  const Mesh mesh = make_mesh({{"a", 2}});
  for (const PartitionSpec& form : {P{}.unreduced({"a"}), P{}.reduced({"a"})})
    expect_error(ErrorKind::bad_argument, "a parameter is sharded or replicated",
                 [&] { place_parameter(ones({4}), NamedSharding(mesh, form), "w"); });
}

TEST(EdgeTest, ShapesFitIntoMemory) {
  const int64_t large = int64_t{1} << 40;
  expect_error(ErrorKind::bad_argument, "fewer than 2^63 bytes", [&] { zeros({large, large}); });
  expect_error(ErrorKind::bad_argument, "fewer than 2^63 bytes", [] {
    array<float>(std::vector<float>{}, {int64_t{1} << 32, int64_t{1} << 32});
  });
  expect_error(ErrorKind::bad_argument, "expected sizes from 0",
               [] { NamedSharding(make_mesh({}), P{}).shard_shape({-4}); });
  expect_error(ErrorKind::other, "[place] no memory for a block of float32[1099511627776]", [&] {
    device_put(ones({large}), NamedSharding(make_mesh({{"a", 1}}), P{}));
  });
}

TEST(EdgeTest, KernelsRefuseInOneLine) {
  const Array bits = array<bool>({true, false});
  expect_error(ErrorKind::dtype_mismatch, "[sub] given bool[2] and bool[2], expected numbers.", [&] { bits - bits; });
  const Array whole = array<int32_t>(std::vector<int32_t>{1, 2, 3, 4}, {2, 2});
  expect_error(ErrorKind::bad_argument, "[cross_entropy] given int32[2,2], int32[2]: ", [&] {
    cross_entropy(whole, array<int32_t>({0, 1}));
  });
}

TEST(EdgeTest, NothingHasNoMean) {
  expect_error(ErrorKind::shape_mismatch, "nothing has no mean", [] {
    cross_entropy(zeros({0, 4}), array<int32_t>(std::vector<int32_t>{}, {0}));
  });
}

TEST(EdgeTest, AnEmptyArrayTakesAnyEmptyShape) {
  const Array placed = device_put(ones({0, 6}), NamedSharding(make_mesh({{"a", 2}}), P{none, "a"}));
  for (const Shape& shape : {Shape{0}, Shape{6, 0}, Shape{0, 5}, Shape{0, 0, 6}, Shape{0, 3, 2}}) {
    EXPECT_EQ(reshape(ones({0, 6}), shape).shape(), shape);
    EXPECT_EQ(reshape(placed, shape).shape(), shape);
  }
  expect_error(ErrorKind::shape_mismatch, "another number", [&] { reshape(placed, {1, 6}); });
}

TEST(EdgeTest, APadKeepsItsValueAlongAShardedDim) {
  const Array x = device_put(ones({4}), NamedSharding(make_mesh({{"a", 2}}), P{"a"}));
  for (const double value : {0.0, 1e-6, 2e-6, -std::numeric_limits<double>::infinity()}) {
    const float v = static_cast<float>(value);
    EXPECT_EQ(pad(x, {{2, 2}}, value).to_host<float>(), (std::vector<float>{v, v, 1, 1, 1, 1, v, v}));
  }
}

TEST(EdgeTest, NoMeshIsAnError) {
  expect_error(ErrorKind::bad_argument, "this is no mesh", [] { Mesh().size(); });
  expect_error(ErrorKind::bad_argument, "this is no mesh", [] { Mesh().has_axis("a"); });
}

TEST(EdgeTest, WhatIsMadeOfAFormulaFitsIntoMemoryToo) {
  const int64_t large = int64_t{1} << 40;
  const Mesh mesh = make_mesh({{"a", 2}});
  const auto refused = [](const char* words, auto&& make) { expect_error(ErrorKind::other, words, make); };
  refused("no memory for a block of int32[1099511627776]", [&] { arange(large); });
  refused("no memory for a block of float32[1099511627776]", [&] { linspace(0, 1, large); });
  refused("no memory for a block of float32[4194304,4194304]", [] { eye(int64_t{1} << 22); });
  refused("no memory for a block of int32[549755813888]",
          [&] { arange(large, {.out_sharding = NamedSharding(mesh, P{"a"})}); });
}

}  // namespace
}  // namespace tessera
