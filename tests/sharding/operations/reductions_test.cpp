// Reductions, scans and orderings: shardings of results, communication, element types and edge cases, as in JAX.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "sharding/accounting/ledger.h"
#include "sharding/autodiff/tape.h"
#include "sharding/operations.h"
#include "sharding/redistribution/device_put.h"
#include "tests/sharding/expect_error.h"

namespace tessera::reductions_test {
namespace {

using testing::expect_error;

constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();

Mesh mesh_of(bool private_replicas) { return make_mesh({{"x", 2}, {"y", 4}}, {.private_replicas = private_replicas}); }

// Small integers, many of them equal.
Array sample(Mesh mesh, const PartitionSpec& spec, DType dtype = float32) {
  std::vector<float> values;
  for (int i = 0; i < 64; ++i) values.push_back(static_cast<float>((i * 37 + 11) % 7 - 3));
  return device_put(astype(array<float>(values, {8, 8}), dtype), NamedSharding(mesh, spec));
}

struct Moved {
  const char* what;
  Array (*function)(const Array&);
  const char* type;   // type of the result, for x over (x, y)
  std::string kinds;  // collectives, in order
  int64_t bytes;
};

const Moved moved[] = {
    {"sum", [](const Array& a) { return sum(a, {1}); }, "float32[8@x]{U:y}", "", 0},
    {"max", [](const Array& a) { return max(a, {1}); }, "float32[8@x]", "all_reduce_max ", 16},
    {"max over both", [](const Array& a) { return max(a); }, "float32[]", "all_reduce_max ", 4},
    {"min", [](const Array& a) { return min(a, {0}, true); }, "float32[1,8@y]", "all_reduce_min ", 8},
    {"prod", [](const Array& a) { return prod(a, {0}); }, "float32[8@y]", "all_reduce_product ", 8},
    {"any", [](const Array& a) { return any(a, {1}); }, "bool[8@x]", "all_reduce_max ", 4},
    {"all", [](const Array& a) { return all(a, {1}); }, "bool[8@x]", "all_reduce_min ", 4},
    {"argmax", [](const Array& a) { return argmax(a, 1); }, "int32[8@x]", "all_reduce_max all_reduce_min ", 32},
    {"argmin of all", [](const Array& a) { return argmin(a); }, "int32[]", "all_reduce_min all_reduce_min ", 8},
    {"var", [](const Array& a) { return var(a, {1}); }, "float32[8@x]", "all_reduce all_reduce ", 32},
    {"norm", [](const Array& a) { return norm(a); }, "float32[]", "all_reduce ", 4},
    {"logsumexp", [](const Array& a) { return logsumexp(a, {1}); }, "float32[8@x]", "all_reduce_max all_reduce ", 32},
    {"softmax", [](const Array& a) { return softmax(a); }, "float32[8@x,8@y]", "all_reduce_max all_reduce ", 32},
    {"log_softmax", [](const Array& a) { return log_softmax(a); }, "float32[8@x,8@y]", "all_reduce_max all_reduce ",
     32},
    {"cumsum", [](const Array& a) { return cumsum(a, 1); }, "float32[8@x,8@y]", "all_gather ", 64},
    {"cumprod", [](const Array& a) { return cumprod(a, 0); }, "float32[8@x,8@y]", "all_gather ", 16},
    {"layer_norm", [](const Array& a) { return layer_norm(a); }, "float32[8@x,8@y]", "all_reduce all_reduce ", 32},
    {"rms_norm", [](const Array& a) { return rms_norm(a, ones({8})); }, "float32[8@x,8@y]", "all_reduce ", 16},
};

TEST(Reductions, ShardedDimsAreNotGathered) {
  for (const bool private_replicas : {false, true})
    for (const Moved& m : moved) {
      const Array x = sample(mesh_of(private_replicas), P{"x", "y"});
      CommLedger ledger;
      EXPECT_EQ(m.function(x).type_string(), m.type) << m.what;
      std::string kinds;
      for (const CommRecord& r : ledger.records()) kinds += r.kind + " ";
      EXPECT_EQ(kinds, m.kinds) << m.what;
      EXPECT_EQ(ledger.bytes(), m.bytes) << m.what;
    }
}

TEST(Reductions, ADimOverTwoAxesIsReducedAtOnce) {
  for (const PartitionSpec& spec : {P{{"x", "y"}}, P{{"y", "x"}}}) {
    const Array x = sample(mesh_of(false), spec);
    CommLedger ledger;
    EXPECT_EQ(max(x, {0}).to_host<float>(), max(sample(mesh_of(false), P{}), {0}).to_host<float>());
    EXPECT_EQ(argmax(x, 0).to_host<int32_t>(), argmax(sample(mesh_of(false), P{}), 0).to_host<int32_t>());
    EXPECT_EQ(cumsum(x, 0).to_host<float>(), cumsum(sample(mesh_of(false), P{}), 0).to_host<float>());
    EXPECT_EQ(ledger.count("", "x,y"), 4) << ledger.to_text();
  }
}

TEST(Reductions, AShardedScaleDoesNotMoveWhatItScales) {
  const Mesh mesh = mesh_of(false);
  const Array x = sample(mesh, P{"x"}), scale = device_put(ones({8}), NamedSharding(mesh, P{"y"}));
  CommLedger ledger;
  EXPECT_EQ(layer_norm(x, scale, scale).type_string(), "float32[8@x,8@y]");
  EXPECT_EQ(rms_norm(x, scale).type_string(), "float32[8@x,8@y]");
  EXPECT_EQ(ledger.count(), 0) << ledger.to_text();
}

// Every pair of element types and every sharding: the types of results and gradients, and the values.
TEST(Reductions, NormsPromoteTheirOperands) {
  const Mesh mesh = mesh_of(false);
  const std::vector<DType> floating{float32, float64, bfloat16, float16};
  const auto check = [&](const PartitionSpec& spec, const PartitionSpec& scales, DType of_x, DType of_scale) {
    const Array x = sample(mesh, spec, of_x), scale = device_put(full({8}, 2, of_scale), NamedSharding(mesh, scales));
    const Array plain = sample(mesh, P{}, float64), two = full({8}, 2, float64);
    Tape tape({x, scale});
    const Array a = tape.shadows()[0], s = tape.shadows()[1];
    const Array layer = layer_norm(a, s, scale), rms = rms_norm(a, s);
    EXPECT_EQ(layer.dtype(), promote(of_x, of_scale)) << x.type_string() << " " << scale.type_string();
    EXPECT_EQ(rms.dtype(), promote(of_x, of_scale)) << x.type_string() << " " << scale.type_string();
    EXPECT_LT(max(abs(astype(layer, float64) - layer_norm(plain, two, two))).item<double>(), .04);
    EXPECT_LT(max(abs(astype(rms, float64) - rms_norm(plain, two))).item<double>(), .04);
    const std::vector<Array> gradients = tape.gradients(sum(astype(layer + rms, float32)));
    EXPECT_EQ(gradients[0].dtype(), of_x);
    EXPECT_EQ(gradients[1].dtype(), of_scale);
  };
  for (const DType of_x : floating)
    for (const DType of_scale : floating) {
      check(P{}, P{}, of_x, of_scale);
      check(P{"x"}, P{}, of_x, of_scale);
      check(P{"x"}, P{"y"}, of_x, of_scale);
      check(P{"x", "y"}, P{}, of_x, of_scale);
    }
  const Array narrow = ones({8}, {.dtype = bfloat16});
  EXPECT_EQ(layer_norm(ones({4, 8}), narrow, narrow).dtype(), float32);
  EXPECT_EQ(layer_norm(ones({4, 8}), narrow, ones({8}, {.dtype = float64})).dtype(), float64);
}

TEST(Reductions, ResultTypesAreThoseOfJax) {
  const auto types = [](DType dtype) {
    const Array x = sample(mesh_of(false), P{"x", "y"}, dtype);
    std::string text;
    for (const Array& a : {sum(x), prod(x), mean(x), max(x), cumsum(x, 0), cumprod(x, 0), var(x), any(x), argmax(x),
                           count_nonzero(x), logsumexp(x), softmax(x), norm(x), sort(x), top_k(x, 1).indices})
      text += std::string(name_of(a.dtype())) + " ";
    return text;
  };
  EXPECT_EQ(types(boolean),
            "int32 int32 float32 bool int32 int32 float32 bool int32 int32 float32 float32 float32 bool int32 ");
  EXPECT_EQ(types(int32),
            "int32 int32 float32 int32 int32 int32 float32 bool int32 int32 float32 float32 float32 int32 int32 ");
  EXPECT_EQ(types(uint8),
            "int32 int32 float32 uint8 uint8 int32 float32 bool int32 int32 float32 float32 float32 uint8 int32 ");
  EXPECT_EQ(types(bfloat16),
            "bfloat16 bfloat16 bfloat16 bfloat16 bfloat16 bfloat16 bfloat16 bool int32 int32 bfloat16 bfloat16 "
            "bfloat16 bfloat16 int32 ");
}

std::vector<float> gradient(const PartitionSpec& spec, const std::vector<float>& values, Array (*f)(const Array&)) {
  const Array x = array<float>(values, {static_cast<int64_t>(values.size())});
  Tape tape({device_put(x, NamedSharding(make_mesh({{"x", 4}}), spec))});
  return tape.gradients(sum(f(tape.shadows()[0])))[0].to_host<float>();
}

// Expects equal values, or NaN in both.
void expect_values(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i])))
        << i << ": " << got[i] << ", expected " << expected[i];
}

TEST(Reductions, GradientsAtTiesAndZerosAreThoseOfJax) {
  for (const PartitionSpec& spec : {P{}, P{"x"}}) {
    const auto largest = [](const Array& a) { return max(a); };
    const auto product = [](const Array& a) { return prod(a); };
    expect_values(gradient(spec, {3, 1, 3, 0, 3, 2, 3, 1}, largest), {.25, 0, .25, 0, .25, 0, .25, 0});
    expect_values(gradient(spec, {1, nan, 3, 1}, largest), {nan, nan, nan, nan});
    expect_values(gradient(spec, {3, 0, 2, 1}, product), {0, 6, 0, 0});
    expect_values(gradient(spec, {3, 0, 2, 0}, product), {0, 0, 0, 0});
    expect_values(gradient(spec, {3, 0, 2, 1}, [](const Array& a) { return cumprod(a, 0); }), {1, 15, 0, 0});
    expect_values(gradient(spec, {1, 1, 1, 1}, [](const Array& a) { return std(a); }), {nan, nan, nan, nan});
    expect_values(gradient(spec, {0, 0, 0, 0}, [](const Array& a) { return norm(a); }), {nan, nan, nan, nan});
    expect_values(gradient(spec, {-infinity, 1, -infinity, 1}, [](const Array& a) { return logsumexp(a); }),
                  {0, .5, 0, .5});
  }
}

TEST(Reductions, PaddingIsFilledWithInfinitiesAndIsNoTie) {
  const auto largest = [](const Array& a) { return max(a); };
  const auto smallest = [](const Array& a) { return min(a); };
  for (const PartitionSpec& spec : {P{}, P{{"x", Uneven::pad}}}) {
    const std::vector<float> low(5, -infinity), high(5, infinity);
    expect_values(gradient(spec, low, largest), std::vector<float>(5, .2F));
    expect_values(gradient(spec, high, smallest), std::vector<float>(5, .2F));
    expect_values(gradient(spec, {-infinity, 1, -infinity}, smallest), {.5, 0, .5});
    expect_values(gradient(spec, low, [](const Array& a) { return logsumexp(a); }), std::vector<float>(5, nan));
    const auto at = [&](const std::vector<float>& values) {
      return device_put(array<float>(values, {5}), NamedSharding(make_mesh({{"x", 4}}), spec));
    };
    EXPECT_EQ(argmax(at(low)).item<int32_t>(), 0);
    EXPECT_EQ(argmin(at(high)).item<int32_t>(), 0);
    expect_values(softmax(at(low)).to_host<float>(), std::vector<float>(5, nan));
  }
}

TEST(Reductions, InfinitiesAndNoNumbers) {
  const Mesh mesh = make_mesh({{"x", 4}});
  for (const PartitionSpec& spec : {P{}, P{"x"}}) {
    const auto at = [&](std::vector<float> values) {
      return device_put(array<float>(values, {static_cast<int64_t>(values.size())}), NamedSharding(mesh, spec));
    };
    EXPECT_TRUE(std::isnan(max(at({1, nan, 3, 2})).item<float>()));
    EXPECT_TRUE(std::isnan(min(at({1, 2, 3, nan})).item<float>()));
    EXPECT_EQ(argmax(at({1, 5, nan, nan})).item<int32_t>(), 2);
    EXPECT_EQ(argmin(at({1, 5, 7, nan})).item<int32_t>(), 3);
    EXPECT_EQ(argmax(at({2, 5, 5, 5})).item<int32_t>(), 1);
    EXPECT_TRUE(any(at({0, nan, 0, 0})).item<bool>());
    EXPECT_FALSE(all(at({1, 1, 1, 0})).item<bool>());
    EXPECT_EQ(logsumexp(at({-infinity, -infinity, -infinity, -infinity})).item<float>(), -infinity);
    EXPECT_EQ(logsumexp(at({infinity, 1, 1, 1})).item<float>(), infinity);
    EXPECT_NEAR(logsumexp(at({1000, 1000, 0, 0})).item<float>(), 1000.6931F, 1e-3);
    EXPECT_TRUE(std::isnan(var(at({1, 1, 1, 1}), {}, false, 4).item<float>()));
    expect_values(top_k(at({3, nan, 3, infinity}), 3).values.to_host<float>(), {nan, infinity, 3});
    EXPECT_EQ(top_k(at({3, 1, 3, 3}), 2).indices.to_host<int32_t>(), (std::vector<int32_t>{0, 2}));
    expect_values(sort(at({3, nan, 1, 2}), 0, true).to_host<float>(), {nan, 3, 2, 1});
    EXPECT_EQ(argsort(at({3, 1, 3, 1}), 0, true).to_host<int32_t>(), (std::vector<int32_t>{0, 2, 1, 3}));
  }
}

TEST(Reductions, HalfPrecisionAddsUpInFloat32) {
  const Mesh mesh = make_mesh({{"x", 4}});
  std::vector<float> values(4096, 1);
  const Array whole = astype(array<float>(values, {4096}), bfloat16);
  const Array x = device_put(whole, NamedSharding(mesh, P{"x"}));
  EXPECT_EQ(softmax(x).to_host<float>()[0], 1.0F / 4096);
  EXPECT_EQ(norm(x).item<float>(), 64);
  EXPECT_EQ(logsumexp(x).item<float>(), logsumexp(whole).item<float>());
  const Array many = ones({1 << 17}, float16);  // more elements than float16 can count
  EXPECT_NEAR(logsumexp(many).item<float>(), 12.78, .01);
  const Array cut = device_put(many, NamedSharding(mesh, P{"x"}));
  EXPECT_EQ(logsumexp(cut).item<float>(), logsumexp(many).item<float>());
  EXPECT_EQ(log_softmax(cut).to_host<float>(), log_softmax(many).to_host<float>());
  const Array label = array<int32_t>({5}), logits = reshape(many, {1, 1 << 17});
  EXPECT_NEAR(cross_entropy(logits, label).item<float>(), 11.78, .01);
  EXPECT_EQ(cross_entropy(reshape(cut, {1, 1 << 17}), label).item<float>(), cross_entropy(logits, label).item<float>());
}

TEST(Reductions, ThreeCandidatesPerBlockAreLessThanTheDim) {
  const Mesh mesh = make_mesh({{"x", 4}});
  const Array x = device_put(reshape(sample(mesh, P{}), {1, 64}), NamedSharding(mesh, P{none, "x"}));
  CommLedger ledger;
  top_k(x, 3);
  EXPECT_EQ(ledger.bytes(), 4 * 3 * (4 + 4)) << ledger.to_text();
}

TEST(Reductions, OneDimNeedsNoBraces) {
  const Array x = reshape(arange(6), {2, 3});
  EXPECT_EQ(sum(x, -1).to_host<int32_t>(), (std::vector<int32_t>{3, 12}));
  EXPECT_EQ(max(x, -1, true).type_string(), "int32[2,1]");
  EXPECT_EQ(transpose(x, {1, 0}).shape(), (Shape{3, 2}));
  EXPECT_EQ(squeeze(max(x, 0, true), 0).shape(), (Shape{3}));
  static_assert(!std::is_invocable_v<decltype([](auto f) -> decltype(sum(x, f)) {}), bool>, "sum(x, true) is no dim");
}

TEST(Reductions, RunningOnesWithoutADimGoOverAllElements) {
  const Array x = device_put(reshape(arange(6), {2, 3}), NamedSharding(make_mesh({{"x", 2}}), P{"x"}));
  EXPECT_EQ(gather(cumsum(x)).to_host<int32_t>(), (std::vector<int32_t>{0, 1, 3, 6, 10, 15}));
  EXPECT_EQ(gather(cumprod(x + 1)).to_host<int32_t>(), (std::vector<int32_t>{1, 2, 6, 24, 120, 720}));
}

TEST(Reductions, WrongUse) {
  const Array x = zeros({2, 3}), none_there = zeros({0, 3});
  expect_error(ErrorKind::invalid_argument, "[max] dim 2 of float32[2,3], expected -2 to 1", [&] { max(x, {2}); });
  expect_error(ErrorKind::invalid_argument, "[prod] dim 0 of float32[2,3] given twice", [&] { prod(x, {0, -2}); });
  expect_error(ErrorKind::invalid_argument, "[max] given float32[0,3] over dims (0)", [&] { max(none_there, {0}); });
  expect_error(ErrorKind::invalid_argument, "[argmin] given float32[0,3]", [&] { argmin(none_there); });
  expect_error(ErrorKind::invalid_argument, "[argmax] dim 5", [&] { argmax(x, 5); });
  expect_error(ErrorKind::invalid_argument, "[top_k] k = 4 given for float32[2,3], expected 0 to 3",
               [&] { top_k(x, 4); });
  expect_error(ErrorKind::invalid_argument, "[sort] dim 3", [&] { sort(x, 3); });
  expect_error(ErrorKind::invalid_argument, "[cumsum] dim -3", [&] { cumsum(x, -3); });
  EXPECT_EQ(max(none_there, {1}).shape(), (Shape{0}));
  EXPECT_EQ(prod(none_there, {0}).to_host<float>(), (std::vector<float>{1, 1, 1}));
}

TEST(Reductions, RunningOnesOfNothingAreNothing) {
  const Mesh mesh = make_mesh({{"x", 2}});
  const Array x = device_put(zeros({0, 3}), NamedSharding(mesh, P{"x"}));
  for (const Array& y : {cumsum(x, 0), cumprod(x, 0), cumsum(x, 1)}) EXPECT_EQ(y.type_string(), "float32[0@x,3]");
}

}  // namespace
}  // namespace tessera::reductions_test
