// Operations of neural networks, in addition to the law: communication, half precision, and errors.
#include "sharding/propagation/run.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/expressions.h"
#include "tests/sharding/law.h"

namespace tessera::networks_test {
namespace {

using namespace tessera::testing;

// Expects values rounded once to bfloat16: a relative error of at most 1/256.
void expect_rounded_once(const Array& y, const at::Tensor& exact) {
  const at::Tensor off = (to_tensor(y).to(at::kDouble) - exact).abs();
  EXPECT_TRUE(off.le(exact.abs() * (1.01 / 256) + 1e-6).all().item<bool>());
}

struct Heads {
  Array query, key, value;
};

// (batch 2, seq 4, heads, head_dim 2)
Heads heads_on(Mesh mesh, int64_t heads, const PartitionSpec& spec, int64_t kv_heads, const PartitionSpec& kv_spec) {
  return {placed(random_tensor({2, 4, heads, 2}, 1), mesh, spec),
          placed(random_tensor({2, 4, kv_heads, 2}, 2), mesh, kv_spec),
          placed(random_tensor({2, 4, kv_heads, 2}, 3), mesh, kv_spec)};
}

TEST(Attention, HeadsOnMoreDevicesThanKvHeadsCommunicateNothing) {
  const Mesh mesh = make_mesh({{"model", 4}});
  const Heads h = heads_on(mesh, 8, P{none, none, "model"}, 2, P{});
  CommLedger ledger;
  const Array y = dot_product_attention(h.query, h.key, h.value, {.causal = true});
  EXPECT_EQ(y.type_string(), "float64[2,4,8@model,2]");
  EXPECT_EQ(ledger.to_text(), "no communication\n");
}

TEST(Attention, AGroupIsShardedLikeItsKvHead) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}});
  const Heads h = heads_on(mesh, 4, P{none, none, {"a", "b"}}, 2, P{none, none, "a"});
  CommLedger ledger;
  const Array y = dot_product_attention(h.query, h.key, h.value);
  EXPECT_EQ(y.type_string(), "float64[2,4,4@(a,b),2]");
  EXPECT_EQ(ledger.to_text(), "no communication\n");
}

TEST(Attention, Errors) {
  const Array q = ones({2, 4, 3, 2}), k = ones({2, 4, 2, 2});
  expect_error(ErrorKind::shape_mismatch, "[dot_product_attention]", CALL(dot_product_attention(q, k, k)));
  expect_error(ErrorKind::shape_mismatch, "[dot_product_attention]", CALL(dot_product_attention(ones({4, 2}), k, k)));
  expect_error(ErrorKind::invalid_argument, "[dot_product_attention] offset -1, expected 0 or more.",
               CALL(dot_product_attention(k, k, k, {.causal = true, .offset = -1})));
}

TEST(RaggedDot, RowsBehindTheLastGroupAreZero) {
  const Array x = ones({4, 2}), kernels = ones({2, 2, 3});
  EXPECT_EQ(sum(ragged_dot(x, kernels, array<int32_t>({1, 2})), {-1}).to_host<float>(),
            (std::vector<float>{6, 6, 6, 0}));
  EXPECT_EQ(ragged_dot(ones({0, 2}), kernels, array<int32_t>({0, 0})).shape(), (Shape{0, 3}));
  EXPECT_EQ(ragged_dot(ones({5, 0}), zeros({3, 0, 4}), array<int32_t>({1, 2, 2})).to_host<float>(),
            std::vector<float>(20, 0));
  EXPECT_EQ(ragged_dot(ones({5, 2}), zeros({0, 2, 4}), zeros({0}, int32)).to_host<float>(), std::vector<float>(20, 0));
  const NamedSharding abstract(make_mesh({{"data", 2}}, {.abstract = true}), P{});
  const auto placed = [&](const Array& a) { return device_put(a, abstract); };
  EXPECT_EQ(ragged_dot(placed(ones({5, 2})), placed(zeros({0, 2, 4})), placed(zeros({0}, int32))).shape(),
            (Shape{5, 4}));
}

TEST(RaggedDot, Errors) {
  const Array x = ones({4, 2}), kernels = ones({2, 2, 3});
  expect_error(ErrorKind::invalid_argument, "[ragged_dot] size 4 of group 1 after 1 of 4 rows",
               CALL(ragged_dot(x, kernels, array<int32_t>({1, 4}))));
  expect_error(ErrorKind::invalid_argument, "size -1 of group 0",
               CALL(ragged_dot(x, kernels, array<int32_t>({-1, 4}))));
  expect_error(ErrorKind::shape_mismatch, "[ragged_dot] given float32[4,2], kernels float32[2,2,3] and sizes int32[3]",
               CALL(ragged_dot(x, kernels, array<int32_t>({1, 1, 1}))));
  expect_error(ErrorKind::dtype_mismatch, "[ragged_dot]", CALL(ragged_dot(x, kernels, ones({2}))));
}

TEST(RotaryEmbedding, ProductsDependOnTheDistanceOnly) {
  const at::Tensor q = random_tensor({1, 1, 2, 8}, 1), k = random_tensor({1, 1, 2, 8}, 2);
  const auto product = [&](int64_t i, int64_t j) {
    return to_tensor(
        sum(rotary_embedding(from_tensor(q), {.offset = i}) * rotary_embedding(from_tensor(k), {.offset = j}), {-1}));
  };
  EXPECT_LT(difference(product(9, 4), product(1009, 1004)), 1e-10);
  EXPECT_GT(difference(product(9, 4), product(9, 5)), 1e-3);
}

TEST(RotaryEmbedding, OfAShardedSequenceMovesNothingAndAnOffsetMakesNoPlan) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}});
  const Array x = placed(random_tensor({2, 4, 4, 2}, 1), mesh, P{none, "a", "b"});
  CommLedger ledger;
  EXPECT_EQ(rotary_embedding(x).type_string(), x.type_string());
  EXPECT_EQ(ledger.to_text(), "no communication\n");
  const size_t plans = detail::plan_count();
  rotary_embedding(x, {.offset = 7});
  rotary_embedding(x, {.offset = 8, .base = 500});
  EXPECT_EQ(detail::plan_count(), plans);
}

TEST(RotaryEmbedding, OfHalfPrecisionIsRoundedOnce) {
  const at::Tensor x = random_tensor({2, 6, 2, 8}, 1).to(at::kBFloat16);
  const at::Tensor exact = to_tensor(rotary_embedding(from_tensor(x.to(at::kDouble)), {.offset = 3}));
  const Array y = rotary_embedding(from_tensor(x), {.offset = 3});
  EXPECT_EQ(y.dtype(), bfloat16);
  expect_rounded_once(y, exact);
}

// For up to 8 positions the short factors apply, and for more the long factors.
TEST(RotaryEmbedding, OfScalingsByLengthChangesWithTheLargestPosition) {
  const Array x = from_tensor(random_tensor({4, 1, 4}, 3));
  const RotaryScaling longrope{.kind = RotaryScaling::longrope,
                               .factor = 4,
                               .original_positions = 8,
                               .short_factors = {1, 2},
                               .long_factors = {3, 4}};
  const double size = std::sqrt(1 + std::log(4) / std::log(8));
  const auto by_factors = [&](int64_t offset, double first, double second) {
    const at::Tensor t = to_tensor(x), positions = at::arange(offset, offset + 4, at::kDouble).unsqueeze(-1),
                     angle = positions * at::tensor({1 / first, 0.01 / second}, at::kDouble);
    const at::Tensor a = t.select(1, 0).narrow(1, 0, 2), b = t.select(1, 0).narrow(1, 2, 2);
    return at::cat({a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()}, 1).mul(size).unsqueeze(1);
  };
  for (const auto& [offset, first, second] : {std::tuple(4, 1, 2), {5, 3, 4}}) {
    EXPECT_LT(difference(to_tensor(rotary_embedding(x, {.offset = offset, .scaling = longrope})),
                         by_factors(offset, first, second)),
              1e-12);
    const Array positions = arange(offset, offset + 4);
    EXPECT_LT(difference(to_tensor(rotary_embedding(x, {.positions = positions, .scaling = longrope})),
                         by_factors(offset, first, second)),
              1e-12);
  }
  const RotaryScaling dynamic{.kind = RotaryScaling::dynamic, .factor = 3, .original_positions = 8};
  EXPECT_TRUE(at::equal(to_tensor(rotary_embedding(x, {.offset = 4, .scaling = dynamic})),
                        to_tensor(rotary_embedding(x, {.offset = 4}))));
  EXPECT_LT(difference(to_tensor(rotary_embedding(x, {.offset = 8, .scaling = dynamic})),
                       to_tensor(rotary_embedding(x, {.offset = 8, .base = 10000 * 2.5 * 2.5}))),
            1e-12);
}

// Llama 4 Scout has no frequencies in between.
TEST(RotaryEmbedding, OfLlama3sScalingMayHaveEqualEnds) {
  const Array x = from_tensor(random_tensor({4, 1, 4}, 3));
  const RotaryScaling divided{
      .kind = RotaryScaling::longrope, .original_positions = 8, .short_factors = {1, 4}, .long_factors = {1, 4}};
  for (const double positions : {8.0, 2 * std::numbers::pi}) {  // 1.3 turns and exactly one
    const RotaryScaling llama3{.kind = RotaryScaling::llama3,
                               .factor = 4,
                               .original_positions = positions,
                               .low_frequency = 1,
                               .high_frequency = 1};
    EXPECT_LT(difference(to_tensor(rotary_embedding(x, {.scaling = llama3})),
                         to_tensor(rotary_embedding(x, {.scaling = divided}))),
              1e-12);
  }
}

TEST(RotaryEmbedding, Errors) {
  expect_error(ErrorKind::invalid_argument,
               "[rotary_embedding] scaling short_factors of 1 numbers, expected dims / 2 = 2.",
               CALL(rotary_embedding(ones({4, 2, 4}), {.scaling = {.kind = RotaryScaling::longrope,
                                                                   .original_positions = 8,
                                                                   .short_factors = {1},
                                                                   .long_factors = {1, 1}}})));
  expect_error(ErrorKind::invalid_argument, "scaling original_positions = 1, expected more than 1",
               CALL(rotary_embedding(ones({4, 2, 4}), {.scaling = {.kind = RotaryScaling::longrope,
                                                                   .factor = 2,
                                                                   .original_positions = 1,
                                                                   .short_factors = {1, 1},
                                                                   .long_factors = {1, 1}}})));
  expect_error(ErrorKind::shape_mismatch, "(..., seq, heads, head_dim)", CALL(rotary_embedding(ones({2, 4, 3}))));
  expect_error(ErrorKind::shape_mismatch, "float32[4,2]", CALL(rotary_embedding(ones({4, 2}))));
  expect_error(ErrorKind::shape_mismatch, "int32", CALL(rotary_embedding(ones({4, 2, 2}, int32))));
  expect_error(ErrorKind::invalid_argument, "[rotary_embedding] offset -2, expected 0 or more.",
               CALL(rotary_embedding(ones({4, 2, 2}), {.offset = -2})));
  for (const int64_t offset : {(int64_t{1} << 53) - 3, INT64_MAX})
    expect_error(ErrorKind::invalid_argument, "of float32[4,2,2], expected positions up to 2^53.",
                 [=] { rotary_embedding(ones({4, 2, 2}), {.offset = offset}); });
  expect_error(ErrorKind::invalid_argument, "[rotary_embedding] base 0, expected a finite one above 0.",
               CALL(rotary_embedding(ones({4, 2, 2}), {.base = 0})));
}

TEST(RmsNorm, OfHalfPrecisionIsRoundedOnce) {
  const at::Tensor x = random_tensor({5, 64}, 1).to(at::kBFloat16), scale = random_tensor({64}, 2).to(at::kBFloat16);
  const Array y = rms_norm(from_tensor(x), from_tensor(scale));
  EXPECT_EQ(y.dtype(), bfloat16);
  const at::Tensor wide = x.to(at::kDouble);
  expect_rounded_once(y, wide / (wide.square().mean(-1, true) + 1e-5).sqrt() * scale.to(at::kDouble));
}

TEST(Concatenate, AnyNumberOfArraysOfAnyTypesAndPlaces) {
  const Mesh mesh = make_mesh({{"a", 2}});
  std::vector<Array> parts;
  std::vector<at::Tensor> theirs;
  for (int64_t i = 0; i < 14; ++i) {
    theirs.push_back(random_tensor({4, 2 + 2 * (i % 3)}, i));
    const PartitionSpec spec = i % 4 ? P{"a"} : P{none, "a"};
    parts.push_back(i % 2 ? from_tensor(theirs.back()) : placed(theirs.back(), mesh, spec));
  }
  EXPECT_LT(difference(to_tensor(concatenate(parts, 1)), at::cat(theirs, 1)), 1e-15);
  EXPECT_EQ(concatenate({ones({2}, int32), ones({1}, float32)}).dtype(), float32);
  EXPECT_TRUE(concatenate({parts[1]}).is_same(parts[1]));
}

TEST(Concatenate, Errors) {
  expect_error(ErrorKind::invalid_argument, "[concatenate] no arrays given", CALL(concatenate({})));
  expect_error(ErrorKind::invalid_argument, "[concatenate] dim 1", CALL(concatenate({ones({2}), ones({2})}, 1)));
  expect_error(ErrorKind::shape_mismatch, "[concatenate] given float32[2,3] and float32[2,4]",
               CALL(concatenate({ones({2, 3}), ones({2, 4})})));
  expect_error(ErrorKind::shape_mismatch, "[concatenate]", CALL(concatenate({ones({2, 3}), ones({3})})));
  expect_error(ErrorKind::missing_array, "[concatenate]", CALL(concatenate({Array(), ones({3})})));
}

// ---- values that are not finite

TEST(CrossEntropy, ABlockOfMaskedLogitsIsNoNaN) {
  const float out = -std::numeric_limits<float>::infinity();
  const Array logits = array<float>({out, out, 1, 2, 1, 2, out, out}), labels = array<int32_t>({3, 0});
  const Array rows = reshape(logits, {2, 4});
  const auto outcome = [&](const Array& x) {
    Tape tape({x});
    const Array loss = cross_entropy(tape.shadows()[0], labels);
    return std::pair(to_tensor(tessera::detail::finalize_result(loss)), to_tensor(tape.gradients(loss)[0]));
  };
  const auto [loss, gradient] = outcome(rows);
  const auto [sharded, sharded_gradient] =
      outcome(device_put(rows, NamedSharding(make_mesh({{"a", 2}}), P{none, "a"})));
  EXPECT_TRUE(at::allclose(sharded, loss)) << sharded << loss;
  EXPECT_TRUE(at::allclose(sharded_gradient, gradient)) << sharded_gradient;
}

// NaN and infinity in the operands make the same positions of the result NaN as in jax.nn.
TEST(Attention, WhatIsNotANumberIsNotHidden) {
  const double none_is = std::numeric_limits<double>::quiet_NaN();
  const auto rows = [&](double first, double second, at::ScalarType type) {
    return from_tensor(at::tensor({first, first, second, second}, at::kDouble).view({1, 2, 1, 2}).to(type));
  };
  const double far = -std::numeric_limits<double>::infinity();
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const Array one = rows(1, 1, type), late = rows(1, none_is, type), never = rows(none_is, none_is, type);
    const Array bias = from_tensor(at::full({2, 2}, far, at::kDouble).to(type));
    const Array half = from_tensor(at::tensor({far, far, 0.0, far}, at::kDouble).view({2, 2}).to(type));
    const struct {
      const char* name;
      Array result;
      bool first, second;
    } table[] = {{"a query", dot_product_attention(late, one, one), false, true},
                 {"a query, causal", dot_product_attention(late, one, one, {.causal = true}), false, true},
                 {"a key", dot_product_attention(one, late, one), true, true},
                 {"a later key", dot_product_attention(one, late, one, {.causal = true}), false, true},
                 {"all keys", dot_product_attention(one, never, one), true, true},
                 {"the scale", dot_product_attention(one, one, one, {.scale = none_is}), true, true},
                 {"a bias of -inf", dot_product_attention(one, one, one, {.bias = bias}), true, true},
                 {"a row of it", dot_product_attention(one, one, one, {.bias = half}), true, false},
                 {"infinite logits", dot_product_attention(rows(INFINITY, 1, type), one, one), true, false},
                 {"none", dot_product_attention(one, one, one, {.causal = true}), false, false}};
    for (const auto& c : table) {
      const at::Tensor is_nan = to_tensor(c.result).isnan().select(3, 0).flatten();
      EXPECT_EQ(is_nan[0].item<bool>(), c.first) << c.name << " " << c10::toString(type);
      EXPECT_EQ(is_nan[1].item<bool>(), c.second) << c.name << " " << c10::toString(type);
    }
  }
}

// If the bias were rounded to bfloat16, it would be 1000 everywhere.
TEST(Attention, ABiasOfAWiderTypeIsAddedAsItIs) {
  const auto rows = [](std::vector<float> values, DType dtype) {
    return astype(reshape(array<float>(values), {1, 3, 1, 4}), dtype);
  };
  const std::vector<float> values{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  for (const DType half : {bfloat16, float16}) {
    const Array query = ones({1, 1, 1, 4}, half), keys = ones({1, 3, 1, 4}, half);
    const auto attended = [&](std::vector<float> bias) {
      const Array y = dot_product_attention(query, keys, rows(values, half), {.bias = array<float>(bias)});
      return astype(y, float32).to_host<float>();
    };
    EXPECT_NEAR(attended({1000, 1001, 1002})[0], 6.3, 0.05);
    EXPECT_EQ(attended({-1e9, -1e9, -1e9}), (std::vector<float>{4, 5, 6, 7}));
    EXPECT_EQ(attended({0, -1e9, -1e9}), (std::vector<float>{0, 1, 2, 3}));
  }
}

TEST(RmsNorm, WithinAnotherTapeSquaresAreNotHalves) {
  const Array x = astype(array<float>({300, -400, 1e-3}), float16);
  const std::vector<float> plain = astype(rms_norm(x), float32).to_host<float>();
  Tape outer({x});
  Tape inner(outer.shadows(), {.differentiable = true});
  const Array y = rms_norm(inner.shadows()[0]);
  EXPECT_EQ(y.dtype(), float16);
  EXPECT_EQ(astype(y, float32).to_host<float>(), plain);
}

TEST(RotaryEmbedding, NarrowPositionsAreCountedAsWideOnes) {
  const Array x = from_tensor(random_tensor({1, 256, 1, 4}, 1)), positions = arange(256);
  const RotaryScaling scaling{.kind = RotaryScaling::dynamic, .factor = 4, .original_positions = 64};
  const auto turned = [&](DType dtype) {
    return to_tensor(rotary_embedding(x, {.positions = astype(positions, dtype), .scaling = scaling}));
  };
  EXPECT_TRUE(at::equal(turned(uint8), turned(int32)));
}

}  // namespace
}  // namespace tessera::networks_test
