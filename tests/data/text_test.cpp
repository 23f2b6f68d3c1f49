// Token batches: int32 rows, targets one token ahead of inputs.
#include <gtest/gtest.h>

#include <vector>

#include "data/batches/token_batch.h"
#include "data/loader.h"
#include "tests/data/expect_error.h"

namespace tessera::data::text_test {
namespace {

TEST(TokenBatch, TargetsAreTheInputsOneTokenOn) {
  const auto batch = token_batch({{1, 2, 3, 255}, {5, 6, 7, 8}});
  EXPECT_EQ(batch.inputs.value.shape(), (Shape{2, 3}));
  EXPECT_EQ(batch.inputs.value.dtype(), int32);
  EXPECT_EQ(batch.inputs.value.to_host<int32_t>(), (std::vector<int32_t>{1, 2, 3, 5, 6, 7}));
  EXPECT_EQ(batch.targets.value.to_host<int32_t>(), (std::vector<int32_t>{2, 3, 255, 6, 7, 8}));
  EXPECT_EQ(batch.targets.axes, (Axes{"batch", "seq"}));
}

TEST(TokenBatch, ComesOutOfALoader) {
  const auto tokens = windows(ByteSource::from_string("abcdefghi"), 3);
  Loader loader(tokens.repeat(), token_batch, {.batch_size = 2});
  const TokenBatch batch = *loader.next();
  EXPECT_EQ(batch.inputs.value.to_host<int32_t>(), (std::vector<int32_t>{'a', 'b', 'c', 'd'}));
  EXPECT_EQ(batch.targets.value.to_host<int32_t>(), (std::vector<int32_t>{'b', 'c', 'd', 'e'}));
}

TEST(TokenBatch, RefusesWindowsThatMakeNoBatch) {
  constexpr auto kind = ErrorKind::shape_mismatch;
  expect_error(kind, {"[token_batch]", "no windows"}, [] { token_batch({}); });
  expect_error(kind, {"windows of 1 values"}, [] { token_batch({{1}}); });
  expect_error(kind, {"3 and 2 values"}, [] { token_batch({{1, 2, 3}, {1, 2}}); });
}

}  // namespace
}  // namespace tessera::data::text_test
