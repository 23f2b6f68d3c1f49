// Random arrays compared with JAX's, unsharded and block by block on meshes.
#include "sharding/random/random.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <functional>

#include "sharding/autodiff/tape.h"
#include "sharding/operations.h"
#include "sharding/redistribution/device_put.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/random/key_reference.h"

namespace tessera::random_test {
namespace {

namespace json = boost::json;
using testing::expect_error;

const Shape shape{3, 5};
const Key key(42);

const json::value& distributions() { return reference().at("distributions"); }

template <class T>
std::vector<T> numbers(const json::value& given) {
  std::vector<T> values;
  for (const json::value& value : given.as_array()) values.push_back(static_cast<T>(json::value_to<double>(value)));
  return values;
}

void expect_near(const Array& x, const json::value& expected) {
  const std::vector<float> given = x.to_host<float>(), wanted = numbers<float>(expected);
  ASSERT_EQ(given.size(), wanted.size());
  for (size_t i = 0; i < given.size(); ++i) EXPECT_NEAR(given[i], wanted[i], 1e-6 * std::max(1.0f, wanted[i])) << i;
}

TEST(RandomTest, ExponentialAndGumbelEqualJax) {
  expect_near(exponential(key, shape), distributions().at("exponential"));
  expect_near(gumbel(key, shape), distributions().at("gumbel"));
}

TEST(RandomTest, BernoulliEqualsJax) {
  for (const json::value& one : distributions().at("bernoulli").as_array())
    EXPECT_EQ(astype(bernoulli(key, one.at("p").to_number<double>(), shape), int32).to_host<int32_t>(),
              numbers<int32_t>(one.at("values")))
        << one.at("p");
}

template <class T>
void expect_integers(const json::value& one, DType dtype) {
  const int64_t low = one.at("minval").as_int64(), high = one.at("maxval").as_int64();
  EXPECT_EQ(randint(key, shape, low, high, dtype).to_host<T>(), json::value_to<std::vector<T>>(one.at("values")))
      << low << " to " << high;
}

TEST(RandomTest, RandintEqualsJax) {
  for (const json::value& one : distributions().at("randint").as_array())
    if (one.at("dtype").as_string() == "uint8")
      expect_integers<uint8_t>(one, uint8);
    else
      expect_integers<int32_t>(one, int32);
  for (const json::value& one : reference().at("x64").at("randint").as_array()) expect_integers<int64_t>(one, int64);
}

TEST(RandomTest, PermutationEqualsJax) {
  for (const json::value& one : distributions().at("permutation").as_array())
    EXPECT_EQ(permutation(key, one.at("n").as_int64()).to_host<int32_t>(), numbers<int32_t>(one.at("values")));
}

Array logits() {
  const json::value& given = distributions().at("logits");
  return array<float>(numbers<float>(given.at("values")), json::value_to<Shape>(given.at("shape")));
}

TEST(RandomTest, PermutationsOfSlicesEqualJax) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}});
  for (const Array& x : {logits(), device_put(logits(), NamedSharding(mesh, P{"a", "b"}))}) {
    EXPECT_EQ(permutation(key, x).to_host<float>(), numbers<float>(distributions().at("permutation_of_rows")));
    EXPECT_EQ(permutation(key, x, 1).to_host<float>(), numbers<float>(distributions().at("permutation_of_columns")));
  }
}

TEST(RandomTest, CategoricalEqualsJaxOnEveryMesh) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}});
  for (const PartitionSpec& spec : {P{}, P{"a", "b"}, P{none, "a"}, P{{"a", "b"}}}) {
    const Array x = device_put(logits(), NamedSharding(mesh, spec));
    for (const json::value& one : distributions().at("categorical").as_array()) {
      std::optional<Shape> wanted;
      if (!one.at("shape").is_null()) wanted = json::value_to<Shape>(one.at("shape"));
      EXPECT_EQ(categorical(key, x, static_cast<int>(one.at("axis").as_int64()), wanted).to_host<int32_t>(),
                numbers<int32_t>(one.at("values")))
          << x.type_string();
    }
  }
  expect_error(ErrorKind::shape_mismatch,
               "[categorical] shape (3) for logits float32[4,6], expected one that ends in (4)",
               [] { categorical(key, logits(), -1, Shape{3}); });
}

// Every lazy initializer, computed at once and in blocks.
TEST(RandomTest, BlocksOnAMeshAreTheWhole) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}});
  const Shape even{4, 6};
  const std::function<Array()> draws[] = {
      [&] { return exponential(key, even); },
      [&] { return gumbel(key, even, float64); },
      [&] { return bernoulli(key, 0.3, even); },
      [&] { return randint(key, even, -7, 19); },
      [&] { return randint(key, even, 0, 1000000007, int64); },
      [&] { return randint(key, even, 5, 100, uint8); },
      [&] { return bits(key, even); },
  };
  for (const auto& draw : draws)
    for (const PartitionSpec& spec : {P{}, P{"a", "b"}, P{none, "b"}, P{{"b", "a"}}}) {
      const Array whole = draw(), placed = device_put(draw(), NamedSharding(mesh, spec));
      EXPECT_TRUE(draw().is_lazy());
      EXPECT_EQ(astype(placed, float64).to_host<double>(), astype(whole, float64).to_host<double>())
          << placed.type_string();
    }
}

TEST(RandomTest, ACastRoundsOnceAndStays) {
  const Array drawn = astype(uniform(key, shape, 0, 10), int32);
  std::vector<float> whole;
  for (int32_t x : drawn.to_host<int32_t>()) whole.push_back(static_cast<float>(x));
  EXPECT_EQ(astype(astype(uniform(key, shape, 0, 10), int32), float32).to_host<float>(), whole);
}

// ---- dropout

TEST(DropoutTest, KeepsTheElementsOfBernoulliAndScalesThem) {
  const Array x = normal(Key(1), {4, 6}), keep = bernoulli(key, 0.75, {4, 6});
  const std::vector<float> given = dropout(key, x, 0.25).to_host<float>(), before = x.to_host<float>();
  const std::vector<bool> kept = keep.to_host<bool>();
  for (size_t i = 0; i < given.size(); ++i) EXPECT_EQ(given[i], kept[i] ? before[i] / 0.75f : 0.0f) << i;
}

TEST(DropoutTest, IsTheSameOnEveryMesh) {
  const std::vector<float> expected = dropout(key, normal(Key(1), {4, 1, 6}), 0.4).to_host<float>();
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}});
  for (const PartitionSpec& spec : {P{}, P{"a"}, P{"a", none, "b"}, P{{"b", "a"}}}) {
    const Array x = device_put(normal(Key(1), {4, 1, 6}), NamedSharding(mesh, spec));
    EXPECT_EQ(dropout(key, x, 0.4).to_host<float>(), expected) << x.type_string();
  }
}

TEST(DropoutTest, RateZeroIsNothingAndRateOneIsZero) {
  const Array x = ones({3});
  EXPECT_TRUE(dropout(key, x, 0).is_same(x));
  EXPECT_EQ(dropout(key, x, 1).to_host<float>(), (std::vector<float>{0, 0, 0}));
  Tape tape({x});
  EXPECT_EQ(tape.gradients(sum(dropout(key, tape.shadows()[0], 1)))[0].to_host<float>(), (std::vector<float>{0, 0, 0}));
}

// ---- errors

TEST(RandomTest, WrongArgumentsAreErrors) {
  expect_error(ErrorKind::invalid_argument, "[bernoulli] p 1.5 given", [] { bernoulli(key, 1.5, {2}); });
  expect_error(ErrorKind::invalid_argument, "[truncated_normal] the bounds are 2 and -2. The lower bound must be below",
               [] { truncated_normal(key, 2, -2, {2}); });
  expect_error(ErrorKind::invalid_argument, "[categorical] float32[3,0] has no categories along dim 1",
               [] { categorical(key, full({3, 0}, 1.0)); });
  expect_error(ErrorKind::invalid_argument, "[categorical] the shape (-1, 2) given",
               [] { categorical(key, full({3, 2}, 1.0), 0, Shape{-1, 2}); });
  expect_error(ErrorKind::invalid_argument, "[dropout] rate -0.1 given", [] { dropout(key, ones({2}), -0.1); });
  expect_error(ErrorKind::dtype_mismatch, "[dropout] dtype int32", [] { dropout(key, ones({2}, int32), 0.1); });
  expect_error(ErrorKind::invalid_argument, "[randint] range [3, 3) given", [] { randint(key, {2}, 3, 3); });
  expect_error(ErrorKind::invalid_argument, "[randint] range [0, 257) given", [] { randint(key, {2}, 0, 257, uint8); });
  expect_error(ErrorKind::dtype_mismatch, "[randint] dtype float32", [] { randint(key, {2}, 0, 2, float32); });
  expect_error(ErrorKind::dtype_mismatch, "[gumbel] dtype int32", [] { gumbel(key, {2}, int32); });
  expect_error(ErrorKind::invalid_argument, "[permutation] n = -1", [] { permutation(key, -1); });
  expect_error(ErrorKind::invalid_argument, "[permutation] dim 2", [] { permutation(key, ones({2, 2}), 2); });
}

}  // namespace
}  // namespace tessera::random_test
