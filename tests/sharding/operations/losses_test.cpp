// Losses, in addition to the law: nothing to average, half precision, sums of micro-batches, and errors.
#include <cmath>

#include "tests/sharding/expect_error.h"
#include "tests/sharding/law.h"

namespace tessera::losses_test {
namespace {

using namespace tessera::testing;

constexpr int64_t vocab = 8;

Array labels_of(const std::vector<int32_t>& labels) {
  return array<int32_t>(labels, {static_cast<int64_t>(labels.size())});
}

// The mean loss and its gradient with respect to the logits.
std::pair<double, at::Tensor> outcome(const Array& logits, const Array& labels, const CrossEntropyOptions& options) {
  Tape tape({logits});
  const Array loss = cross_entropy(tape.shadows()[0], labels, options);
  return {to_tensor(tessera::detail::finalize_result(loss)).to(at::kDouble).item<double>(),
          to_tensor(tape.gradients(loss)[0])};
}

TEST(Losses, NothingToAverageIsZeroAndTeachesNothing) {
  const at::Tensor logits = random_tensor({4, vocab}, 1);
  for (const PartitionSpec& spec : {P{}, P{"a"}, P{none, "a"}}) {
    SCOPED_TRACE(spec.to_string());
    const Array x = placed(logits, make_mesh({{"a", 2}}), spec);
    for (const CrossEntropyOptions& options :
         {CrossEntropyOptions{.ignore_label = -100}, {.weights = zeros({4}), .ignore_label = -100}}) {
      const auto [loss, gradient] = outcome(x, labels_of({-100, -100, -100, -100}), options);
      EXPECT_EQ(loss, 0);
      EXPECT_TRUE(gradient.eq(0).all().item<bool>());
    }
    EXPECT_EQ(outcome(x, labels_of({1, 2, 3, 4}), {.weights = zeros({4})}).first, 0);
  }
}

TEST(Losses, SmoothedLossesDoNotOverflowWithTheirLogits) {
  const Array logits = full({1, vocab}, std::numeric_limits<double>::lowest(), float64);
  for (const PartitionSpec& spec : {P{}, P{none, "a"}}) {
    const Array x = device_put(logits, NamedSharding(make_mesh({{"a", 2}}), spec));
    EXPECT_NEAR(outcome(x, labels_of({3}), {.label_smoothing = .1}).first, std::log(vocab), 1e-12) << x.type_string();
  }
}

// The ignored label may be a token of the vocabulary, as for the padding of most tokenizers, or a value that the
// labels' type cannot hold.
TEST(Losses, AnyLabelMayBeIgnored) {
  const at::Tensor logits = random_tensor({4, vocab}, 1), three = logits.slice(0, 0, 3);
  const double expected = at::cross_entropy_loss(three, at::tensor({1, 2, 7}, at::kLong)).item<double>();
  const Array x = from_tensor(logits);
  EXPECT_NEAR(cross_entropy(x, labels_of({1, 2, 7, 0}), {.ignore_label = 0}).item<double>(), expected, 1e-12);
  EXPECT_NEAR(cross_entropy(x, labels_of({1, 2, 7, 9}), {.ignore_label = 9}).item<double>(), expected, 1e-12);
  const Array bytes = astype(labels_of({1, 2, 7, 255}), uint8);
  EXPECT_NEAR(cross_entropy(x, bytes, {.ignore_label = 255}).item<double>(), expected, 1e-12);
  EXPECT_TRUE(
      std::isfinite(cross_entropy(x, astype(labels_of({1, 2, 7, 0}), uint8), {.ignore_label = -100}).item<double>()));
}

// A position with infinite logits is ignored like any other.
TEST(Losses, WhatIsIgnoredMayBeInfinite) {
  const at::Tensor finite = random_tensor({2, vocab}, 1);
  at::Tensor logits = at::cat({finite, at::full({2, vocab}, -INFINITY, at::kDouble)});
  const double expected = at::cross_entropy_loss(finite, at::tensor({1, 2}, at::kLong)).item<double>();
  for (const PartitionSpec& spec : {P{}, P{none, "a"}})
    for (const double z : {0.0, 1e-4}) {
      const Array x = placed(logits, make_mesh({{"a", 2}}), spec);
      const WeightedSum loss = cross_entropy_sum(x, labels_of({1, 2, -1, -1}), {.ignore_label = -1, .z_loss = z});
      const double squares = z * finite.logsumexp(-1).square().mean().item<double>();
      EXPECT_NEAR(to_tensor(loss.mean()).item<double>(), expected + squares, 1e-12);
    }
}

// In bfloat16, the type of the logits, a count of 4,097 would round to 4,096.
TEST(Losses, HalfPrecisionIsCountedInFloat32) {
  constexpr int64_t n = 4097;
  const Array logits = zeros({n, 2}, bfloat16);
  const Array labels = zeros({n}, int32);
  const WeightedSum loss = cross_entropy_sum(logits, labels, {.ignore_label = -1});
  EXPECT_EQ(loss.weight.dtype(), float32);
  EXPECT_EQ(loss.weight.item<float>(), n);
  EXPECT_NEAR(loss.sum.item<float>() / n, std::log(2.0), 2e-3);
  EXPECT_EQ(cross_entropy(logits, labels, {.ignore_label = -1}).dtype(), bfloat16);
}

TEST(Losses, HalfPrecisionOverAShardedVocabIsRoundedOnce) {
  const at::Tensor logits = random_tensor({4, vocab}, 1).to(at::kBFloat16);
  const at::Tensor exact =
      at::cross_entropy_loss(logits.to(at::kDouble), at::tensor({1, 7, 0, 4}, at::kLong), {}, at::Reduction::None);
  const Array x = placed(logits, make_mesh({{"a", 4}}), P{none, "a"});
  const at::Tensor got = to_tensor(cross_entropy_per_position(x, labels_of({1, 7, 0, 4}))).to(at::kDouble);
  EXPECT_TRUE((got - exact).abs().le(exact.abs() / 256).all().item<bool>()) << got << exact;
}

TEST(WeightedSum, PartsAddUpToTheWhole) {
  const at::Tensor values = random_tensor({6}, 1), weights = random_tensor({6}, 2).abs();
  const auto part = [&](int64_t from, int64_t to) {
    return weighted_sum(from_tensor(values.slice(0, from, to)), from_tensor(weights.slice(0, from, to)));
  };
  const double expected = ((values * weights).sum() / weights.sum()).item<double>();
  EXPECT_NEAR((part(0, 1) + part(1, 6)).mean().item<double>(), expected, 1e-12);
  EXPECT_NEAR(weighted_sum(from_tensor(values)).mean().item<double>(), values.mean().item<double>(), 1e-12);
  const at::Tensor chosen = values.gt(0);
  EXPECT_NEAR(weighted_sum(from_tensor(values), from_tensor(chosen)).mean().item<double>(),
              values.masked_select(chosen).mean().item<double>(), 1e-12);
  EXPECT_EQ(weighted_sum(ones({0})).mean().item<float>(), 0);
}

TEST(Losses, Errors) {
  const Array x = ones({4, vocab}), labels = labels_of({0, 1, 2, 3});
  expect_error(ErrorKind::invalid_argument, "[cross_entropy] indices from -1 to 3 given, expected 0 to 7.",
               [&] { cross_entropy(x, labels_of({-1, 1, 2, 3}), {.ignore_label = -100}); });
  expect_error(ErrorKind::invalid_argument, "[cross_entropy] label_smoothing 1.5, expected 0 to 1.",
               [&] { cross_entropy_per_position(x, labels, {.label_smoothing = 1.5}); });
  expect_error(ErrorKind::invalid_argument, "[cross_entropy] z_loss -1, expected a finite number of 0 or more.",
               [&] { cross_entropy_sum(x, labels, {.z_loss = -1}); });
  expect_error(ErrorKind::shape_mismatch,
               "[cross_entropy] weights float32[2] for labels int32[4], expected the same shape.",
               [&] { cross_entropy(x, labels, {.weights = ones({2})}); });
  expect_error(ErrorKind::shape_mismatch,
               "[cross_entropy] given float32[4,8] and labels int32[1], expected labels of the shape (4).",
               [&] { cross_entropy(x, labels_of({1})); });
  expect_error(ErrorKind::shape_mismatch, "[cross_entropy] given float32[] and labels int32[4], expected logits (",
               [&] { cross_entropy(ones({}), labels); });
  expect_error(ErrorKind::shape_mismatch, "[weighted_sum] weights float32[2] of values float32[4,8], expected the same",
               [&] { weighted_sum(x, ones({2})); });
}

// In float16, the sum of 10,000 log-probabilities and the square of 300 would overflow.
TEST(Losses, SmoothingAndSquaresOfHalvesAreThoseOfFloats) {
  const Array labels = array<int32_t>({1});
  for (const DType half : {float16, bfloat16}) {
    const Array many = zeros({1, 10'000}, half), large = full({1, 4}, 300, {.dtype = half});
    EXPECT_NEAR(cross_entropy(many, labels, {.label_smoothing = .1}).item<float>(), std::log(1e4), 0.05);
    EXPECT_NEAR(cross_entropy(large, labels, {.z_loss = 1e-4}).item<float>(),
                std::log(4) + 1e-4 * std::pow(300 + std::log(4), 2), 0.05);
    EXPECT_EQ(cross_entropy(large, labels, {.z_loss = 1e-4}).dtype(), half);
  }
}

TEST(Losses, TheWeightOfWhatIsIgnoredDoesNotCount) {
  const Array losses = cross_entropy_per_position(zeros({2, 3}), array<int32_t>({0, -1}),
                                                  {.weights = array<float>({1, NAN}), .ignore_label = -1});
  EXPECT_NEAR(losses.to_host<float>()[0], std::log(3.0), 1e-6);
  EXPECT_EQ(losses.to_host<float>()[1], 0);
}

}  // namespace
}  // namespace tessera::losses_test
