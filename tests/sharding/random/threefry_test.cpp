// Random numbers compared with JAX's. They are bitwise equal for any division of the array into blocks.
#include "sharding/random/threefry.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <boost/json.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <type_traits>

#include "sharding/random/threefry_simd.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/random/key_reference.h"

namespace tessera::threefry_test {
namespace {

namespace json = boost::json;

IndexRanges whole(const Shape& shape) {
  IndexRanges ranges;
  for (int64_t size : shape) ranges.emplace_back(0, size);
  return ranges;
}

size_t elements(const IndexRanges& ranges) {
  size_t count = 1;
  for (const auto& [start, stop] : ranges) count *= static_cast<size_t>(stop - start);
  return count;
}

// A generator as a function of the shape, the block and the output pointer.
template <class T>
using Generator = std::function<void(const Shape&, const IndexRanges&, T*)>;

template <class T>
std::vector<T> draw(const Generator<T>& generator, const Shape& shape, const IndexRanges& block) {
  std::vector<T> values(elements(block));
  generator(shape, block, values.data());
  return values;
}

template <class T>
Generator<T> bits(Key key) {
  return [=](const Shape& shape, const IndexRanges& block, T* out) { random_bits(key, shape, block, out); };
}
template <class T>
Generator<T> uniform(Key key, double low, double high) {
  return
      [=](const Shape& shape, const IndexRanges& block, T* out) { random_uniform(key, shape, block, low, high, out); };
}
template <class T>
Generator<T> normal(Key key) {
  return [=](const Shape& shape, const IndexRanges& block, T* out) { random_normal(key, shape, block, out); };
}
template <class T>
Generator<T> truncated_normal(Key key, double lower, double upper) {
  return [=](const Shape& shape, const IndexRanges& block, T* out) {
    random_truncated_normal(key, shape, block, lower, upper, out);
  };
}

template <class T>
std::vector<T> draw_whole(const Generator<T>& generator, const Shape& shape) {
  return draw(generator, shape, whole(shape));
}

template <class T>
void expect_near(const std::vector<T>& given, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(given.size(), expected.size());
  for (size_t i = 0; i < given.size(); ++i) EXPECT_NEAR(given[i], expected[i], tolerance) << i;
}

// --- JAX ---

template <class T>
void expect_exactly(const std::vector<T>& given, const json::value& expected) {
  std::vector<T> values;
  for (const json::value& value : expected.as_array()) {
    if constexpr (std::is_floating_point_v<T>)
      values.push_back(static_cast<T>(json::value_to<double>(value)));
    else
      values.push_back(json::value_to<T>(value));
  }
  EXPECT_EQ(given, values);
}

double bound(const json::value& value, double infinite) {
  return value.is_null() ? infinite : json::value_to<double>(value);
}

// Compares bits and uniforms exactly, and normals within the tolerances.
template <class Float, class Bits>
void expect_draws(Key key, const json::value& draws, double normal_tolerance, double truncated_tolerance) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const json::value& given : draws.as_array()) {
    const auto shape = json::value_to<Shape>(given.at("shape"));
    SCOPED_TRACE(to_string(shape));
    expect_exactly(draw_whole(bits<Bits>(key), shape), given.at("bits"));
    expect_near(draw_whole(normal<Float>(key), shape), json::value_to<std::vector<double>>(given.at("normal")),
                normal_tolerance);
    for (const json::value& one : given.at("uniform").as_array()) {
      SCOPED_TRACE(json::serialize(one.at("low")) + " to " + json::serialize(one.at("high")));
      const double low = json::value_to<double>(one.at("low")), high = json::value_to<double>(one.at("high"));
      expect_exactly(draw_whole(uniform<Float>(key, low, high), shape), one.at("values"));
    }
    for (const json::value& one : given.at("truncated_normal").as_array()) {
      SCOPED_TRACE(json::serialize(one.at("lower")) + " to " + json::serialize(one.at("upper")));
      const auto generator =
          truncated_normal<Float>(key, bound(one.at("lower"), -infinity), bound(one.at("upper"), infinity));
      expect_near(draw_whole(generator, shape), json::value_to<std::vector<double>>(one.at("values")),
                  truncated_tolerance);
    }
  }
}

TEST(ThreefryTest, DrawsEqualJax) {
  for (const json::value& given : reference().at("keys").as_array()) {
    SCOPED_TRACE(json::serialize(given.at("seed")));
    expect_draws<float, uint32_t>(Key(json::value_to<uint64_t>(given.at("seed"))), given.at("draws"), 1e-6, 1e-5);
  }
}

TEST(ThreefryTest, DoublesAndWideBitsEqualJaxWithX64) {
  expect_draws<double, uint64_t>(Key(42), reference().at("x64").at("draws"), 1e-13, 1e-12);
}

TEST(ThreefryTest, NarrowBitsOfJaxAreTheLowBits) {
  const json::value& expected = reference().at("narrow_bits");
  std::vector<uint32_t> values = draw_whole(bits<uint32_t>(Key(42)), {9});
  expect_exactly(values, expected.at("uint32"));
  for (uint32_t& value : values) value &= 0xFFFF;
  expect_exactly(values, expected.at("uint16"));
  for (uint32_t& value : values) value &= 0xFF;
  expect_exactly(values, expected.at("uint8"));
}

TEST(ThreefryTest, NormalEqualsJaxInTheTails) {
  const json::value& expected = reference().at("long_normal");
  const Key key(json::value_to<uint64_t>(expected.at("seed")));
  const std::vector<float> all = draw_whole(normal<float>(key), {json::value_to<int64_t>(expected.at("size"))});
  std::vector<float> picked;
  for (const json::value& index : expected.at("index").as_array()) picked.push_back(all[json::value_to<size_t>(index)]);
  expect_near(picked, json::value_to<std::vector<double>>(expected.at("values")), 1e-6);
}

// --- blocks ---

// The elements of the block, copied from the values of the array.
template <class T>
std::vector<T> cut(const std::vector<T>& values, const Shape& shape, const IndexRanges& block) {
  std::vector<T> result;
  std::vector<int64_t> at;
  for (const auto& [start, stop] : block) at.push_back(start);
  for (size_t left = elements(block); left > 0; --left) {
    int64_t index = 0;
    for (size_t d = 0; d < shape.size(); ++d) index = index * shape[d] + at[d];
    result.push_back(values[static_cast<size_t>(index)]);
    for (size_t d = shape.size(); d-- > 0;) {
      if (++at[d] < block[d].second) break;
      at[d] = block[d].first;
    }
  }
  return result;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Calls f with every block of a shape that is split into `parts` nearly equal ranges along each dimension.
void for_each_block(const Shape& shape, const Shape& parts, const std::function<void(const IndexRanges&)>& f,
                    IndexRanges block = {}) {
  const size_t d = block.size();
  if (d == shape.size()) return f(block);
  for (int64_t i = 0; i < parts[d]; ++i) {
    IndexRanges longer = block;
    longer.emplace_back(shape[d] * i / parts[d], shape[d] * (i + 1) / parts[d]);
    for_each_block(shape, parts, f, longer);
  }
}

template <class T>
void expect_same_in_blocks(const Generator<T>& generator) {
  const std::vector<std::pair<Shape, Shape>> cases = {{{1537}, {1}},
                                                      {{1537}, {2}},
                                                      {{1537}, {7}},
                                                      {{64, 32}, {4, 2}},
                                                      {{33, 65}, {4, 8}},
                                                      {{5, 7, 11}, {2, 3, 4}},
                                                      {{5, 7, 11}, {1, 7, 1}},
                                                      {{9, 1, 130}, {3, 1, 2}},
                                                      {{700, 3}, {1, 3}},
                                                      {{3, 4}, {5, 4}},
                                                      {{2, 3, 4, 5}, {2, 1, 2, 1}}};
  for (const auto& [shape, parts] : cases) {
    const std::vector<T> all = draw_whole(generator, shape);
    for_each_block(shape, parts, [&](const IndexRanges& block) {
      EXPECT_TRUE(same_bits(draw(generator, shape, block), cut(all, shape, block)))
          << to_string(shape) << " in " << to_string(parts);
    });
  }
}

TEST(ThreefryTest, BlocksOfBitsAreTheWholeBitForBit) {
  expect_same_in_blocks(bits<uint32_t>(Key(3)));
  expect_same_in_blocks(bits<uint64_t>(Key(3)));
}

TEST(ThreefryTest, BlocksOfUniformsAreTheWholeBitForBit) {
  for (const auto& [low, high] : {std::pair{0.0, 1.0}, {-0.044, 0.044}, {1e-30, 3.3}}) {
    expect_same_in_blocks(uniform<float>(Key(3), low, high));
    expect_same_in_blocks(uniform<double>(Key(3), low, high));
  }
}

TEST(ThreefryTest, BlocksOfNormalsAreTheWholeBitForBit) {
  expect_same_in_blocks(normal<float>(Key(3)));
  expect_same_in_blocks(normal<double>(Key(3)));
  expect_same_in_blocks(truncated_normal<float>(Key(3), -2, 2));
  expect_same_in_blocks(truncated_normal<double>(Key(3), -2, 2));
}

TEST(ThreefryTest, ReshapingKeepsTheNumbers) {
  EXPECT_EQ(draw_whole(normal<float>(Key(5)), {6, 4}), draw_whole(normal<float>(Key(5)), {24}));
  EXPECT_EQ(draw_whole(normal<float>(Key(5)), {}), draw_whole(normal<float>(Key(5)), {1}));
}

TEST(ThreefryTest, CountersGoPast32Bits) {
  const int64_t columns = int64_t{1} << 31;
  const std::vector<uint32_t> values = draw(bits<uint32_t>(Key(9)), {4, columns}, {{1, 3}, {columns - 2, columns}});
  const auto expected = [](uint32_t high, uint32_t low) {
    const Key words = threefry2x32(Key(9), high, low);
    return words.data[0] ^ words.data[1];
  };
  EXPECT_EQ(values, (std::vector<uint32_t>{expected(0, 0xFFFFFFFEu), expected(0, 0xFFFFFFFFu), expected(1, 0x7FFFFFFEu),
                                           expected(1, 0x7FFFFFFFu)}));
  const std::vector<uint32_t> across =
      draw(bits<uint32_t>(Key(9)), {4 * columns}, {{2 * columns - 1, 2 * columns + 1}});
  EXPECT_EQ(across, (std::vector<uint32_t>{expected(0, 0xFFFFFFFFu), expected(1, 0)}));
}

TEST(ThreefryTest, EmptyBlocksWriteNothing) {
  random_normal(Key(0), {4, 3}, {{2, 2}, {0, 3}}, static_cast<float*>(nullptr));
  random_normal(Key(0), {0}, {{0, 0}}, static_cast<float*>(nullptr));
}

// --- the same bits everywhere ---

// The FNV-1a hash of a million values: a processor, compiler or flag that rounds differently changes it.
template <class T>
uint64_t fingerprint(const Generator<T>& generator) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (T value : draw_whole(generator, {1000003})) {
    for (uint8_t byte : std::bit_cast<std::array<uint8_t, sizeof(T)>>(value)) hash = (hash ^ byte) * 0x100000001B3u;
  }
  return hash;
}

TEST(ThreefryTest, BitsAreTheSameOnEveryProcessorAndCompiler) {
  EXPECT_EQ(fingerprint(bits<uint32_t>(Key(1))), 0x2DB0A68A11157A6BU);
  EXPECT_EQ(fingerprint(uniform<float>(Key(1), 0, 1)), 0xF5AD5167C4639C38U);
  EXPECT_EQ(fingerprint(uniform<float>(Key(1), -0.044, 0.044)), 0x6B27D56B4908F85CU);
  EXPECT_EQ(fingerprint(uniform<float>(Key(1), 1e-30, 3.3)), 0xC87BF08383F9FCE4U);
  EXPECT_EQ(fingerprint(uniform<double>(Key(1), -0.044, 0.044)), 0xA311F356E612E1A3U);
  EXPECT_EQ(fingerprint(normal<float>(Key(1))), 0xA282182E239A5BBDU);
  EXPECT_EQ(fingerprint(normal<double>(Key(1))), 0xA704374FB05C659FU);
  EXPECT_EQ(fingerprint(truncated_normal<float>(Key(1), -2, 2)), 0x6FCFE243C64A8656U);
}

// --- bounds ---

TEST(ThreefryTest, UniformKeepsItsBounds) {
  for (float x : draw_whole(uniform<float>(Key(11), 2, 5), {1 << 20})) ASSERT_TRUE(2 <= x && x < 5) << x;
}

TEST(ThreefryTest, TruncatedNormalStaysBetweenItsBounds) {
  for (float x : draw_whole(truncated_normal<float>(Key(11), -2, 0.5), {1 << 20})) ASSERT_TRUE(-2 < x && x < 0.5) << x;
}

// --- errors ---

void expect_refused(const std::function<void()>& call, const std::string& message) {
  EXPECT_EQ(testing::error_of(ErrorKind::invalid_argument, call), message);
}

TEST(ThreefryTest, BlocksOutsideTheArrayAreRefused) {
  float out[64];
  const std::string tail = "] is not inside the global shape (4, 3). Give one range within each dim.";
  expect_refused([&] { random_normal(Key(0), {4, 3}, {{0, 4}, {0, 4}}, out); }, "[random] the block [0:4, 0:4" + tail);
  expect_refused(
      [&] {
        random_normal(Key(0), {4, 3}, {{-1, 2}, {0, 3}}, out);
      },
      "[random] the block [-1:2, 0:3" + tail);
  expect_refused([&] { random_normal(Key(0), {4, 3}, {{2, 1}, {0, 3}}, out); }, "[random] the block [2:1, 0:3" + tail);
  expect_refused([&] { random_normal(Key(0), {4, 3}, {{0, 4}}, out); }, "[random] the block [0:4" + tail);
}

TEST(ThreefryTest, EmptyTruncationsAreRefused) {
  float out[1];
  expect_refused(
      [&] {
        random_truncated_normal(Key(0), {1}, {{0, 1}}, 2, 2, out);
      },
      "[random_truncated_normal] the bounds are 2 and 2. The lower bound must be below the upper one.");
  expect_refused(
      [&] {
        random_truncated_normal(Key(0), {1}, {{0, 1}}, NAN, 2, out);
      },
      "[random_truncated_normal] the bounds are nan and 2. The lower bound must be below the upper one.");
}

}  // namespace
}  // namespace tessera::threefry_test
