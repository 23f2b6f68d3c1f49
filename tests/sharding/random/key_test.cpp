// Keys, split and fold_in against JAX's.
#include "sharding/random/key.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <set>
#include <sstream>
#include <utility>

#include "sharding/operations.h"
#include "sharding/random/threefry.h"
#include "sharding/random/threefry_simd.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/random/key_reference.h"

namespace tessera::key_test {
namespace {

namespace json = boost::json;

Key key_in(const json::value& words) {
  const auto [high, low] = json::value_to<std::pair<uint32_t, uint32_t>>(words);
  return Key::from_data(high, low);
}

TEST(KeyTest, SeedsGiveJaxKeys) {
  for (const json::value& given : reference().at("keys").as_array())
    EXPECT_EQ(Key(json::value_to<uint64_t>(given.at("seed"))), key_in(given.at("data"))) << given.at("seed");
}

TEST(KeyTest, IsPrintedAsItIsMade) {
  std::ostringstream out;
  out << Key(42) << ' ' << Key(uint64_t{3} << 32 | 7);
  EXPECT_EQ(out.str(), "Key::from_data(0, 42) Key::from_data(3, 7)");
}

TEST(KeyTest, LargeAndNegativeSeedsGiveTheKeysOfJaxWithX64) {
  for (const json::value& given : reference().at("x64").at("keys").as_array())
    EXPECT_EQ(Key(static_cast<uint64_t>(given.at("seed").as_int64())), key_in(given.at("data"))) << given.at("seed");
}

TEST(KeyTest, SplitEqualsJax) {
  for (const json::value& given : reference().at("keys").as_array()) {
    const Key key(json::value_to<uint64_t>(given.at("seed")));
    for (const auto& [count, expected] : given.at("split").as_object()) {
      const std::vector<Key> keys = split(key, static_cast<int64_t>(expected.as_array().size()));
      for (size_t i = 0; i < keys.size(); ++i)
        EXPECT_EQ(keys[i], key_in(expected.at(i))) << "seed " << given.at("seed") << ", key " << i << " of " << count;
    }
  }
}

TEST(KeyTest, SplitOfAFixedNumberIsTheSame) {
  const auto [first, second, third] = split<3>(Key(42));
  EXPECT_EQ((std::vector<Key>{first, second, third}), split(Key(42), 3));
}

TEST(KeyTest, SplitIntoNoneIsEmptyAndIntoLessIsAnError) {
  EXPECT_TRUE(split(Key(0), 0).empty());
  EXPECT_EQ(testing::error_of(ErrorKind::invalid_argument, [] { split(Key(0), -1); }),
            "[split] n = -1 keys requested. Give a number from 0 on.");
}

TEST(KeyTest, FoldInEqualsJax) {
  for (const json::value& given : reference().at("keys").as_array()) {
    const Key key(json::value_to<uint64_t>(given.at("seed")));
    for (const json::value& folded : given.at("fold_in").as_array())
      EXPECT_EQ(fold_in(key, json::value_to<uint32_t>(folded.at("data"))), key_in(folded.at("key")))
          << given.at("seed");
  }
}

TEST(KeyTest, FoldInGivesEveryNumberAnotherKey) {
  std::set<std::array<uint32_t, 2>> seen{Key(7).data};
  for (uint32_t i = 0; i < 10000; ++i) EXPECT_TRUE(seen.insert(fold_in(Key(7), i).data).second) << i;
}

TEST(KeyTest, CipherEqualsJaxOnBothCounterWords) {
  for (const json::value& given : reference().at("counters").as_array()) {
    const auto high = json::value_to<uint32_t>(given.at("high")), low = json::value_to<uint32_t>(given.at("low"));
    EXPECT_EQ(threefry2x32(Key(json::value_to<uint64_t>(given.at("seed"))), high, low), key_in(given.at("words")));
  }
}

}  // namespace
}  // namespace tessera::key_test
