// The scalars of a tree: found, written as JSON, and read back unchanged.
#include "nn/tree/tree_scalars.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/nn/support.h"

namespace tessera::nn::tree_scalars_test {
namespace {

using testing::expect_error;

enum class Mode : uint8_t { train = 1, eval = 2 };

struct Inner {
  std::vector<int32_t> sizes = {3, 4};
  std::optional<double> base;
  std::map<std::string, float> rates = {{"a", 0.25f}};
};

struct Counters {
  int64_t count = -9007199254740993;
  uint64_t large = std::numeric_limits<uint64_t>::max();
  uint8_t byte = 200;
  double third = 1.0 / 3;
  float tenth = 0.1f;
  double worst = std::numeric_limits<double>::infinity();
  bool on = true;
  Mode mode = Mode::eval;
  std::string name = "a \"b\"\n";
  Key key = Key(uint64_t{1} << 40);
  Array none;
  Axes axes = {"embed"};
  Inner inner;
};

std::vector<std::string> texts_of(Counters& counters) {
  std::vector<std::string> texts;
  for (const Scalar& number : scalars(counters, "c")) texts.push_back(number.path + " " + number.to_json());
  return texts;
}

TEST(Scalars, AreListedWithTheirPathsAndValues) {
  Counters counters;
  EXPECT_EQ(texts_of(counters), (std::vector<std::string>{
                                    "c.count -9007199254740993", "c.large 18446744073709551615", "c.byte 200",
                                    "c.third 3.333333333333333E-1", "c.tenth 1.0000000149011612E-1", "c.worst \"inf\"",
                                    "c.on true", "c.mode 2", "c.name \"a \\\"b\\\"\\n\"", "c.key [256,0]",
                                    "c.inner.sizes.0 3", "c.inner.sizes.1 4", "c.inner.rates.a 2.5E-1"}));
}

TEST(Scalars, ComeBackAsTheyWere) {
  Counters saved, other;
  other.inner.sizes = {0, 0};
  other.inner.rates = {{"a", 0.0f}};
  const Scalars from = scalars(saved), to = scalars(other);
  for (const Scalar& number : to) {
    const bool is_text = number.kind == ScalarKind::text;
    if (!is_text) std::fill_n(static_cast<char*>(number.value), number.size, 0);
  }
  ASSERT_EQ(from.size(), to.size());
  for (size_t i = 0; i < from.size(); ++i) to[i].set_json(from[i].to_json());
  EXPECT_EQ(texts_of(saved), texts_of(other));
  EXPECT_EQ(saved.third, other.third);
  EXPECT_EQ(saved.tenth, other.tenth);
  to[3].set_json("\"nan\"");
  EXPECT_TRUE(std::isnan(other.third));
}

TEST(Scalars, OfAnotherKindAreRefused) {
  Counters counters;
  const Scalars all = scalars(counters, "c");
  const struct {
    size_t number;
    const char *text, *expected;
  } cases[] = {{0, "1.5", "a whole number that fits 8 bytes"},
               {2, "256", "a whole number that fits 1 bytes"},
               {2, "-1", "a whole number that fits 1 bytes"},
               {3, "true", "a number that fits 8 bytes"},
               {6, "1", "true or false that fits 1 bytes"},
               {7, "0", "a whole number that fits 1 bytes and is an enumerator"},
               {7, "3", "a whole number that fits 1 bytes and is an enumerator"},
               {8, "7", "a string that fits 32 bytes"},
               {9, "[1]", "two whole numbers below 2^32 that fits 8 bytes"},
               {9, "[1,4294967296]", "two whole numbers below 2^32 that fits 8 bytes"}};
  for (const auto& [number, text, expected] : cases)
    expect_error(ErrorKind::invalid_file,
                 "[restore] " + all[number].path + ": " + text + " given, expected " + expected + ".",
                 [&] { all[number].set_json(text); });
  EXPECT_EQ(counters.byte, 200);
}

}  // namespace
}  // namespace tessera::nn::tree_scalars_test
