// Convolutions and pooling: the sharding of results, communication, and errors.
#include "sharding/operations/neural/convolution.h"

#include <gtest/gtest.h>

#include "sharding/accounting/ledger.h"
#include "sharding/operations.h"
#include "sharding/redistribution/device_put.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/expressions.h"

namespace tessera::convolution_test {
namespace {

using testing::expect_error;

const ConvDimensionNumbers features_last{"NHWC", "HWIO", "NHWC"};

Array placed(Shape shape, const PartitionSpec& spec) {
  return device_put(ones(std::move(shape)), NamedSharding(make_mesh({{"x", 2}, {"y", 2}}), spec));
}

std::string convolved(const PartitionSpec& image, const PartitionSpec& kernel, int64_t groups = 1) {
  return conv_general_dilated(placed({4, 4, 4, 4}, image), placed({3, 3, 4 / groups, 8}, kernel), {1, 1}, "SAME",
                              {.dimension_numbers = features_last, .feature_group_count = groups})
      .type_string();
}

TEST(ConvolutionTest, BatchAndFeaturesStayWhereTheyAre) {
  CommLedger ledger;
  EXPECT_EQ(convolved(P{"x"}, P{}), "float32[4@x,4,4,8]");
  EXPECT_EQ(convolved(P{"x"}, P{none, none, none, "y"}), "float32[4@x,4,4,8@y]");
  EXPECT_EQ(convolved(P{"x", none, none, "y"}, P{none, none, "y"}), "float32[4@x,4,4,8]{U:y}");
  EXPECT_EQ(convolved(P{"x", none, none, "y"}, P{none, none, none, "y"}, 2), "float32[4@x,4,4,8@y]");
  EXPECT_EQ(ledger.count(), 0);
}

TEST(ConvolutionTest, ASpatialDimStaysShardedAndExchangesHalos) {
  CommLedger ledger;
  EXPECT_EQ(max_pool(placed({3, 4, 4, 3}, P{none, "x"}), {2, 2}, {2, 2}).type_string(), "float32[3,2@x,2,3]");
  EXPECT_EQ(ledger.count(), 0);
  EXPECT_EQ(convolved(P{none, "x"}, P{}), "float32[4,4@x,4,8]");
  EXPECT_EQ(ledger.count(), 1);
  EXPECT_EQ(ledger.bytes("block_exchange", "x"), 4 * 1 * 4 * 4 * 4);  // one row of each image
}

TEST(ConvolutionTest, ShapesFollowStridesAndPadding) {
  const Array image = ones({2, 3, 7}), kernel = ones({5, 3, 3});
  EXPECT_EQ(conv_general_dilated(image, kernel, {2}, "SAME").shape(), (Shape{2, 5, 4}));
  EXPECT_EQ(conv_general_dilated(image, kernel, {2}, "VALID").shape(), (Shape{2, 5, 3}));
  EXPECT_EQ(conv_general_dilated(image, kernel, {1}, {{2, -1}}).shape(), (Shape{2, 5, 6}));
  EXPECT_EQ(avg_pool(ones({8, 3}), {2}, {}, "SAME_LOWER").to_host<float>()[0], 0.5f);
}

TEST(ConvolutionTest, CallsThatDifferInOneOptionHaveDifferentPlans) {
  const Array image = ones({2, 4, 9, 9}), kernel = ones({4, 4, 3, 3});
  const auto shape = [&](const std::vector<int64_t>& strides, const Padding& padding,
                         const ConvolutionOptions& options = {}) {
    return conv_general_dilated(image, kernel, strides, padding, options).shape();
  };
  for (int round = 0; round < 2; ++round) {  // more calls than one type caches
    EXPECT_EQ(shape({1, 1}, "VALID"), (Shape{2, 4, 7, 7}));
    EXPECT_EQ(shape({1, 1}, "SAME"), (Shape{2, 4, 9, 9}));
    EXPECT_EQ(shape({1, 1}, {{0, 0}, {1, 0}}), (Shape{2, 4, 7, 8}));
    EXPECT_EQ(shape({1, 1}, {{0, 1}, {1, 1}}), (Shape{2, 4, 8, 9}));
    EXPECT_EQ(shape({2, 1}, "VALID"), (Shape{2, 4, 4, 7}));
    EXPECT_EQ(shape({1, 2}, "VALID"), (Shape{2, 4, 7, 4}));
    EXPECT_EQ(shape({1, 1}, "VALID", {.rhs_dilation = {1, 2}}), (Shape{2, 4, 7, 5}));
    EXPECT_EQ(shape({1, 1}, "VALID", {.rhs_dilation = {2, 1}}), (Shape{2, 4, 5, 7}));
    EXPECT_EQ(shape({1, 1}, {{0, 0}, {0, 0}}, {.lhs_dilation = {2, 1}}), (Shape{2, 4, 15, 7}));
    EXPECT_EQ(shape({1, 1}, {{0, 0}, {0, 0}}, {.lhs_dilation = {1, 2}}), (Shape{2, 4, 7, 15}));
    EXPECT_EQ(shape({1, 1}, "VALID", {.dimension_numbers = {"NCHW", "OIHW", "NHWC"}}), (Shape{2, 7, 7, 4}));
    EXPECT_EQ(shape({1, 1}, "VALID", {.dimension_numbers = {"NCHW", "OIHW", "CNHW"}}), (Shape{4, 2, 7, 7}));
  }
}

TEST(ConvolutionTest, WrongUseIsRefused) {
  const Array image = ones({2, 3, 7}), kernel = ones({5, 3, 3});
  const auto conv = [](const Array& x, const Array& k, const Padding& padding, const ConvolutionOptions& options = {}) {
    conv_general_dilated(x, k, {1}, padding, options);
  };
  expect_error(ErrorKind::shape_mismatch, "1 groups of 3 features, and kernels for 4 of them",
               CALL(conv(image, ones({5, 4, 3}), "SAME")));
  expect_error(ErrorKind::dtype_mismatch, "given float32[2,3,7] and float64[5,3,3], expected one element type",
               CALL(conv(image, ones({5, 3, 3}, float64), "SAME")));
  expect_error(ErrorKind::invalid_argument, "padding \"FULL\" given", CALL(conv(image, kernel, "FULL")));
  expect_error(ErrorKind::shape_mismatch, "2 pairs of padding given, expected 1",
               CALL(conv(image, kernel, {{0, 0}, {0, 0}})));
  expect_error(ErrorKind::shape_mismatch, "a window of 3 does not fit into 2 positions",
               CALL(conv(ones({2, 3, 2}), kernel, "VALID")));
  expect_error(ErrorKind::shape_mismatch, "dimension numbers \"NWC\", \"WIO\", \"NWW\"",
               CALL(conv(image, kernel, "SAME", {.dimension_numbers = {"NWC", "WIO", "NWW"}})));
  expect_error(ErrorKind::shape_mismatch, "strides (1, 1) given, expected 1 sizes",
               CALL(conv_general_dilated(image, kernel, {1, 1}, "SAME")));
  expect_error(ErrorKind::invalid_argument, "with lhs_dilation, expected pairs",
               CALL(conv(image, kernel, "SAME", {.lhs_dilation = {2}})));
  expect_error(ErrorKind::dtype_mismatch, "[max_pool] x is int32[4,4], expected a floating type. Convert with astype.",
               CALL(max_pool(ones({4, 4}, int32), {2})));
  expect_error(ErrorKind::shape_mismatch, "[max_pool] a window (1, 1) over float32[4,4], expected (..., 2 spatial dims, "
                                          "features). Reshape x, or give a window of fewer sizes.",
               CALL(max_pool(ones({4, 4}), {1, 1})));
  expect_error(ErrorKind::shape_mismatch, "[avg_pool] window () given, expected a size for each of 1 to 3 spatial dims.",
               CALL(avg_pool(ones({4, 4}), {})));
}

TEST(Convolution, AKernelHasAnExtent) {
  expect_error(ErrorKind::shape_mismatch, "kernel float32[4,3,0,3] has a spatial dim of 0, expected 1 or more.",
               CALL(conv_general_dilated(ones({2, 3, 9, 7}), zeros({4, 3, 0, 3}), {1, 1}, "SAME")));
}

TEST(Pooling, VolumesOfHalvesHaveAverages) {
  for (const DType half : {bfloat16, float16}) {
    const Array y = avg_pool(full({1, 2, 2, 2, 1}, 3, {.dtype = half}), {2, 2, 2});
    EXPECT_EQ(y.dtype(), half);
    EXPECT_EQ(y.item<float>(), 3);
  }
}

}  // namespace
}  // namespace tessera::convolution_test
