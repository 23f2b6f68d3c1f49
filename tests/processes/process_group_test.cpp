// Every collective of a process group, for every element type, compared with the same arithmetic in one place.
#include "sharding/runtime/process_group.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "sharding/base/error.h"
#include "sharding/runtime/control_plane.h"
#include "sharding/runtime/processes.h"

namespace tessera::detail::process_group_test {
namespace {

WaitContext here(const char* operation) { return {.operation = operation, .where = std::source_location::current()}; }

// The tensor of `process`: small integers, whose sums are exact in every element type.
at::Tensor numbers(int process, at::IntArrayRef shape, at::ScalarType dtype) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  const at::Tensor t = at::arange(n, at::kLong).mul(process + 3).remainder(dtype == at::kBool ? 2 : 4);
  return t.to(dtype).view(shape).contiguous();
}

std::vector<at::Tensor> of_all(at::IntArrayRef shape, at::ScalarType dtype) {
  std::vector<at::Tensor> all;
  for (int i = 0; i < process_count(); ++i) all.push_back(numbers(i, shape, dtype));
  return all;
}

at::Tensor folded(const std::vector<at::Tensor>& all, ReduceOp how) {
  at::Tensor total = all[0].to(at::kDouble);
  for (size_t i = 1; i < all.size(); ++i) {
    const at::Tensor next = all[i].to(at::kDouble);
    if (how == ReduceOp::sum) total = total.add(next);
    if (how == ReduceOp::product) total = total.mul(next);
    if (how == ReduceOp::max) total = at::where(total.gt(next), total, next);
    if (how == ReduceOp::min) total = at::where(total.lt(next), total, next);
  }
  return total.to(all[0].scalar_type());
}

class ProcessGroupLaw : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  static void expect_equal(const at::Tensor& given, const at::Tensor& expected, const std::string& what) {
    EXPECT_TRUE(at::equal(given, expected)) << what << " in process " << process_index();
  }
  ProcessGroup& group_ = process_group(everyone());
};

TEST_P(ProcessGroupLaw, AllReduceIsTheFoldOfAll) {
  for (const int64_t n : {1, 3, 5000, 100003})  // around the size from which each process reduces a part
    for (const ReduceOp how : {ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::product}) {
      at::Tensor x = numbers(process_index(), {n}, GetParam());
      group_.all_reduce(x, how, here("all_reduce"))->wait();
      expect_equal(x, folded(of_all({n}, GetParam()), how),
                   "fold " + std::to_string(static_cast<int>(how)) + " of " + std::to_string(n));
    }
}

TEST_P(ProcessGroupLaw, AllGatherHasEveryonesInOrder) {
  at::Tensor all = at::empty({process_count(), 5, 7}, GetParam());
  group_.all_gather(numbers(process_index(), {5, 7}, GetParam()), all, here("all_gather"))->wait();
  expect_equal(all, at::stack(of_all({5, 7}, GetParam())), "all_gather");
}

TEST_P(ProcessGroupLaw, ReduceScatterIsThePartOfTheSum) {
  for (const int64_t n : {1, 40000}) {
    const at::Tensor parts = numbers(process_index(), {process_count(), n}, GetParam());
    const at::Tensor before = parts.clone();
    at::Tensor mine = at::empty({n}, GetParam());
    group_.reduce_scatter(parts, mine, here("reduce_scatter"))->wait();
    const at::Tensor sum = folded(of_all({process_count(), n}, GetParam()), ReduceOp::sum);
    expect_equal(mine, sum.select(0, process_index()), "reduce_scatter");
    expect_equal(parts, before, "the operand of reduce_scatter");
  }
}

TEST_P(ProcessGroupLaw, AllToAllIsTheTranspose) {
  at::Tensor received = at::empty({process_count(), 3}, GetParam());
  group_.all_to_all(numbers(process_index(), {process_count(), 3}, GetParam()), received, here("all_to_all"))->wait();
  const at::Tensor all = at::stack(of_all({process_count(), 3}, GetParam()));
  expect_equal(received, all.select(1, process_index()), "all_to_all");
}

TEST_P(ProcessGroupLaw, ExchangeKeepsTheOrderBetweenTwo) {
  const int n = process_count(), me = process_index(), next = (me + 1) % n, before = (me + n - 1) % n;
  const std::vector<Message> sends{{next, numbers(me, {4}, GetParam())}, {next, numbers(me + 10, {9}, GetParam())}};
  std::vector<Message> receives{{before, at::empty({4}, GetParam())}, {before, at::empty({9}, GetParam())}};
  group_.exchange(sends, receives, here("exchange"))->wait();
  expect_equal(receives[0].tensor, numbers(before, {4}, GetParam()), "first message");
  expect_equal(receives[1].tensor, numbers(before + 10, {9}, GetParam()), "second message");
}

// Collectives of secondary() run concurrently with others, in any order relative to them.
TEST_P(ProcessGroupLaw, PendingCollectivesAreConcurrentWithOthers) {
  ProcessGroup& group = process_group(everyone());
  at::Tensor first = numbers(process_index(), {30000}, GetParam()), second = numbers(process_index(), {50}, GetParam());
  std::unique_ptr<Work> one, two;
  const auto begin = [&] {
    one = group.secondary().all_reduce(first, ReduceOp::sum, here("first"));
    two = group.secondary().all_reduce(second, ReduceOp::sum, here("second"));
  };
  at::Tensor between = numbers(process_index(), {100}, GetParam());
  if (process_index() % 2 == 0) begin();
  group.all_reduce(between, ReduceOp::max, here("between"))->wait();
  if (process_index() % 2 != 0) begin();
  two->wait();
  one->wait();
  expect_equal(first, folded(of_all({30000}, GetParam()), ReduceOp::sum), "first");
  expect_equal(second, folded(of_all({50}, GetParam()), ReduceOp::sum), "second");
  expect_equal(between, folded(of_all({100}, GetParam()), ReduceOp::max), "between");
}

INSTANTIATE_TEST_SUITE_P(DTypes, ProcessGroupLaw,
                         ::testing::Values(at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kChar, at::kInt,
                                           at::kLong, at::kByte, at::kBool),
                         [](const auto& dtype) { return std::string(c10::toString(dtype.param)); });

TEST(ProcessGroup, ReplicasOfASumAreTheSameBits) {
  for (const int64_t n : {1000, 300000}) {
    at::Tensor x = at::arange(n, at::kFloat).mul_(0.1 * (process_index() + 1)).sin_();
    ProcessGroup& group = process_group(everyone());
    group.all_reduce(x, ReduceOp::sum, here("all_reduce"))->wait();
    at::Tensor all = at::empty({process_count(), n}, at::kFloat);
    group.all_gather(x, all, here("all_gather"))->wait();
    for (const at::Tensor& other : all.unbind(0)) EXPECT_TRUE(at::equal(other, x));
  }
}

// In bfloat16 256 + 1 is 256, so a sum that is rounded at every step would lose all ones.
TEST(ProcessGroup, SumsOfBfloat16AreRoundedOnce) {
  at::Tensor x = at::zeros({50000}, at::kBFloat16).fill_(process_index() == 0 ? 256.0 : 1.0);
  process_group(everyone()).all_reduce(x, ReduceOp::sum, here("all_reduce"))->wait();
  const at::Tensor sum = at::zeros({1}, at::kFloat).fill_(256.0 + (process_count() - 1)).to(at::kBFloat16);
  EXPECT_EQ(x[0].item().toFloat(), sum[0].item().toFloat());
  EXPECT_EQ(x[49999].item().toFloat(), sum[0].item().toFloat());
}

TEST(ProcessGroup, PartsOfTheProgramActApart) {
  if (process_count() < 4) GTEST_SKIP() << "needs 4 processes";
  const std::vector<int> mine = process_index() % 2 == 0 ? std::vector<int>{2, 0} : std::vector<int>{1, 3};
  ProcessGroup& group = process_group(mine);
  EXPECT_EQ(mine[group.index()], process_index());
  at::Tensor all = at::empty({2}, at::kInt);
  const at::Tensor me = at::zeros({}, at::kInt).fill_(process_index());
  group.all_gather(me, all, here("all_gather"))->wait();
  EXPECT_EQ(all[0].item().toInt(), mine[0]);
  EXPECT_EQ(all[1].item().toInt(), mine[1]);
  EXPECT_EQ(&group, &process_group(mine));
}

// Several all_reduces in progress, and gathers between them.
TEST(ProcessGroup, RunsSeveralCollectivesAtOnce) {
  ProcessGroup& group = process_group(everyone());
  std::vector<at::Tensor> sums, gathered;
  std::vector<std::unique_ptr<Work>> works;
  for (int i = 0; i < 12; ++i) {
    sums.push_back(numbers(process_index(), {60000 + i}, at::kFloat));
    works.push_back(group.all_reduce(sums.back(), ReduceOp::sum, here("all_reduce")));
    gathered.push_back(at::empty({process_count(), 30000 + i}, at::kFloat));
    works.push_back(
        group.all_gather(numbers(process_index(), {30000 + i}, at::kFloat), gathered.back(), here("all_gather")));
  }
  while (!works.empty()) {
    works.back()->wait();
    works.pop_back();
  }
  for (int i = 0; i < 12; ++i) {
    EXPECT_TRUE(at::equal(sums[i], folded(of_all({60000 + i}, at::kFloat), ReduceOp::sum))) << i;
    EXPECT_TRUE(at::equal(gathered[i], at::stack(of_all({30000 + i}, at::kFloat)))) << i;
  }
}

// Returns the names of this process's threads in which SIGPIPE is not blocked.
std::vector<std::string> threads_with_sigpipe() {
  std::vector<std::string> names;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name, line;
    std::getline(std::ifstream(task.path() / "comm"), name);
    for (std::ifstream status(task.path() / "status"); std::getline(status, line);)
      if (line.starts_with("SigBlk:") && (std::stoull(line.substr(7), nullptr, 16) >> (SIGPIPE - 1)) % 2 == 0)
        names.push_back(name);
  }
  return names;
}

// By default SIGPIPE ends a program that writes to the connection of an ended process. Only threads that do not write
// to connections may receive it: the main thread, the heartbeat thread, and a thread that waits for the store.
TEST(ProcessGroup, EndedProcessesDoNotEndTheOthersBySigpipe) {
  const std::vector<std::string> names = threads_with_sigpipe();
  EXPECT_LE(names.size(), 3u) << ::testing::PrintToString(names);
}

TEST(ProcessGroup, RefusesWhatItCannotDo) {
  if (process_count() < 2) GTEST_SKIP() << "needs 2 processes";
  at::Tensor x = at::zeros({4, 4}, at::kFloat).t();
  EXPECT_THROW(process_group(everyone()).all_reduce(x, ReduceOp::sum, here("all_reduce"))->wait(), Error);
  EXPECT_THROW(process_group({process_index() == 0 ? 1 : 0, process_count()}), Error);
}

}  // namespace
}  // namespace tessera::detail::process_group_test
