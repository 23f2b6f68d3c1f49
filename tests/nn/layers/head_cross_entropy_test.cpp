// The loss of a decoder's head, computed in chunks, equals the loss of its logits for both heads and every strategy.
#include <gtest/gtest.h>

#include "nn/layers/embedding.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "nn/transformations/accumulate_gradients.h"
#include "nn/transformations/cast.h"
#include "nn/transformations/remat.h"
#include "tests/nn/transformations/models.h"

namespace tessera::nn::head_cross_entropy_test {
namespace {

using testing::difference;
using testing::strategies;

struct Batch {
  NamedArray ids{"batch", none}, labels{"batch", none};
};

struct Decoder {
  Embedding embed;
  RMSNorm norm;
  std::optional<Linear> head;  // none: tied to the embedding

  static Decoder init(bool tied, bool lora = false) {
    const auto [k1, k2] = split<2>(Key(3));
    const Axis vocab{"vocab", 16}, width{"embed", 8};
    Decoder decoder{
        .embed = Embedding::init(k1, vocab, width, init::normal(1)), .norm = RMSNorm::init({"norm", 8}), .head = {}};
    if (!tied) decoder.head = Linear::init(k2, width, vocab, {.bias = false});
    if (!lora) return decoder;
    decoder.head = with_lora(k1, *decoder.head, {.rank = 3});
    decoder.head->lora->b.value = normal(k2, {3, 16});  // instead of zeros
    return decoder;
  }

  Array hidden(const Array& ids) const { return norm(embed(ids)); }
  Array logits(const Array& ids) const { return head ? (*head)(hidden(ids)) : embed.attend(hidden(ids)); }
  WeightedSum loss(const Array& ids, const Array& labels) const {
    const LinearCrossEntropyOptions options{.ignore_label = -100, .chunk = 3};
    return head ? head_cross_entropy_sum(*head, hidden(ids), labels, options)
                : head_cross_entropy_sum(embed, hidden(ids), labels, options);
  }
};

Batch make_batch() {
  Batch batch;
  batch.ids = randint(Key(1), {8, 6}, 0, 16);
  const Array labels = randint(Key(2), {8, 6}, 0, 16);
  batch.labels = where(labels < 5, -100, labels);
  return batch;
}

Array plain(const Decoder& model, const Batch& batch) {
  return cross_entropy(model.logits(batch.ids), batch.labels, {.ignore_label = -100});
}
WeightedSum chunked(const Decoder& model, const Batch& batch) { return model.loss(batch.ids, batch.labels); }
Array again(const Decoder& model, const Batch& batch) {
  const auto loss = [](const Decoder& m, const Array& ids, const Array& labels) { return m.loss(ids, labels).mean(); };
  return nn::remat(loss)(model, static_cast<const Array&>(batch.ids), static_cast<const Array&>(batch.labels));
}

void expect_plain(const std::pair<Array, Decoder>& got, const std::pair<Array, Decoder>& expected, double tolerance) {
  EXPECT_NEAR(to_tensor(got.first).item<double>(), to_tensor(expected.first).item<double>(), tolerance);
  EXPECT_LE(difference(got.second, expected.second), tolerance);
}

TEST(HeadLoss, IsThatOfTheLogitsUnderEveryStrategy) {
  for (const bool tied : {false, true}) {
    const Decoder whole = cast(Decoder::init(tied), float64);
    const std::pair<Array, Decoder> expected = nn::value_and_grad(plain)(whole, make_batch());
    for (const auto& [name, mesh_rules] : strategies()) {
      SCOPED_TRACE(name + (tied ? ", tied" : ""));
      const Decoder model = filter_shard(whole, mesh_rules);
      const Batch batch = filter_shard(make_batch(), mesh_rules);
      expect_plain(nn::value_and_grad(chunked)(model, batch), expected, 1e-12);
      expect_plain(nn::value_and_grad(again)(model, batch), expected, 1e-12);
      expect_plain(nn::accumulate_gradients(chunked, 2)(model, batch), expected, 1e-12);
    }
  }
}

TEST(HeadLoss, OfALowRankChangeIsThatOfTheLogits) {
  const Decoder whole = cast(Decoder::init(false, true), float64);
  const std::pair<Array, Decoder> expected = nn::value_and_grad(plain)(whole, make_batch());
  EXPECT_GT(difference(expected.second.head->lora->a.value, zeros({8, 3}, float64)), 0.01);
  for (const auto& [name, mesh_rules] : strategies()) {
    SCOPED_TRACE(name);
    const Decoder model = filter_shard(whole, mesh_rules);
    expect_plain(nn::value_and_grad(chunked)(model, filter_shard(make_batch(), mesh_rules)), expected, 1e-12);
  }
}

TEST(HeadLoss, InMixedPrecisionIsNearItsOwn) {
  for (const bool tied : {false, true}) {
    const auto mixed = [](const Decoder& m, const Batch& b) { return chunked(cast(m, bfloat16), b); };
    const Decoder model = Decoder::init(tied);
    const auto [loss, grads] = nn::value_and_grad(mixed)(model, make_batch());
    const auto [expected, expected_grads] = nn::value_and_grad(plain)(model, make_batch());
    EXPECT_EQ(loss.dtype(), float32);
    EXPECT_NEAR(loss.item<float>(), expected.item<float>(), 0.02);
    EXPECT_EQ(testing::types_of(grads), testing::types_of(model));
    EXPECT_LE(difference(grads, expected_grads), 0.02);
  }
}

TEST(HeadLoss, FollowsTheHeadsPolicy) {
  const Linear head =
      Linear::init(Key(1), {"embed", 8}, {"vocab", 16}, {.bias = false, .dtypes = {.compute = bfloat16}});
  const Array x = normal(Key(2), {3, 8}), labels = array<int32_t>({1, 2, 15});
  const Array expected = cross_entropy(astype(head(x), float32), labels);
  const Array loss = head_cross_entropy(head, x, labels);
  EXPECT_EQ(loss.dtype(), float32);
  EXPECT_NEAR(loss.item<float>(), expected.item<float>(), 1e-6);
}

TEST(HeadLoss, Errors) {
  const Axis embed{"embed", 8}, vocab{"vocab", 16};
  const Linear biased = Linear::init(Key(0), embed, vocab), head = Linear::init(Key(0), embed, vocab, {.bias = false});
  const Array x = ones({3, 8}), labels = array<int32_t>({0, 1, 2});
  testing::expect_error(ErrorKind::invalid_argument,
                        "[head_cross_entropy] the head has a bias, expected a kernel alone. Make it with {.bias = "
                        "false}, or write cross_entropy(head(x), labels).",
                        [&] { head_cross_entropy(biased, x, labels); });
  testing::expect_error(ErrorKind::shape_mismatch,
                        "[head_cross_entropy] given float32[3,7], expected (..., embed) with embed = 8.",
                        [&] { head_cross_entropy(head, ones({3, 7}), labels); });
}

}  // namespace
}  // namespace tessera::nn::head_cross_entropy_test
