// Texts that all processes compare: the text that a process sends is read within its bounds.
#include "sharding/runtime/consensus.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "sharding/runtime/control_plane.h"
#include "sharding/runtime/processes.h"
#include "tests/sharding/expect_error.h"

namespace tessera::detail::consensus_test {
namespace {

// Sends arbitrary data in the comparison, in place of the last process.
at::Tensor send(const at::Tensor& mine) {
  at::Tensor all = at::empty({process_count(), mine.numel()}, mine.options());
  gather_by_channel(*world().agreement, 0, mine, all, {.operation = "test", .where = {}})->wait();
  return all;
}

int last_process() { return process_count() - 1; }

std::string message_of_the_others(ErrorKind kind) {
  return testing::error_of(kind, [] { check_agreement("test", process_count(), "abc"); });
}

TEST(Consensus, ASizeOutOfBoundsIsAnErrorThatNamesItsProcess) {
  if (process_count() < 2) GTEST_SKIP() << "needs 2 processes";
  for (const int64_t size : {int64_t{1} << 62, (int64_t{64} << 20) + 1, int64_t{-1}}) {
    if (process_index() == last_process()) {
      send(at::tensor({size, int64_t{0}}, at::kLong));
    } else {
      EXPECT_EQ(message_of_the_others(ErrorKind::other), "[test] process " + std::to_string(last_process()) +
                                                             " sends a text of " + std::to_string(size) +
                                                             " bytes, expected at most 67108864. Send less at a time.");
    }
  }
}

TEST(Consensus, ATextEndsWithItsRow) {
  if (process_count() < 2) GTEST_SKIP() << "needs 2 processes";
  if (process_index() == last_process()) {
    send(at::tensor({int64_t{3}, int64_t{0}}, at::kLong));
    at::Tensor text = at::empty({4}, at::kByte);
    std::memcpy(text.mutable_data_ptr(), "xxxx", 4);  // without a terminating zero
    send(text);
  } else {
    EXPECT_EQ(message_of_the_others(ErrorKind::inconsistent),
              "[test] process 0 has abc, process " + std::to_string(last_process()) +
                  " has xxxx. All processes must run the same program with the same arguments.");
  }
}

TEST(Consensus, AnErrorShowsNoMoreThanAMessageOfEachText) {
  if (process_count() < 2) GTEST_SKIP() << "needs 2 processes";
  const std::string mine(process_index() == last_process() ? 100000 : 10, 'x');
  for (const std::string& message :
       {testing::error_of(ErrorKind::inconsistent, [&] { check_agreement("test", process_count(), mine); }),
        testing::error_of(ErrorKind::inconsistent, [&] {
          static Votes votes("test", "a comparison");
          votes.check_same(mine, "Nothing to do.");
        })}) {
    EXPECT_NE(message.find(std::string(4096, 'x') + "."), std::string::npos);
    EXPECT_LT(message.size(), 4096 + 300);
  }
}

}  // namespace
}  // namespace tessera::detail::consensus_test
