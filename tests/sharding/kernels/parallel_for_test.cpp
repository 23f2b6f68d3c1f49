// parallel_for: each job runs once, the first error is thrown, idle threads sleep, and settings do not change.
#include "sharding/kernels/parallel_for.h"

#include <ATen/Parallel.h>
#include <ATen/ops/add.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <thread>
#include <vector>

#include "sharding/base/caller.h"
#include "sharding/base/threads.h"
#include "sharding/kernels/tensors.h"

namespace tessera::detail::parallel_for_test {
namespace {

constexpr int64_t long_enough = 1'000'000'000;  // nanoseconds; enough work for another thread

class ParallelFor : public ::testing::TestWithParam<int> {
 protected:
  ParallelFor() { at::set_num_threads(GetParam()); }
  ~ParallelFor() override { at::set_num_threads(before_); }

 private:
  int before_ = at::get_num_threads();
};

INSTANTIATE_TEST_SUITE_P(Threads, ParallelFor, ::testing::Values(1, 2, 3, 8));

void compute_for(std::chrono::microseconds time) {
  for (const auto end = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < end;) {
  }
}

TEST_P(ParallelFor, RunsEveryJobOnce) {
  const ScopedIntraOpThreads alone;
  for (const int n : {0, 1, 2, 7, 64, 1000, 70'000})
    for (int round = 0; round < 20; ++round) {
      std::vector<std::atomic<int>> runs(n);
      parallel_for(n, long_enough, [&](int i) { ++runs[i]; });
      for (const auto& count : runs) EXPECT_EQ(count, 1);
    }
}

TEST_P(ParallelFor, ThrowsTheErrorOfTheLowestNumberWhenAllHaveEnded) {
  const ScopedIntraOpThreads alone;
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> ended = 0;
    try {
      parallel_for(16, long_enough, [&](int i) {
        compute_for(std::chrono::microseconds(i % 3 * 20));
        if (i == 5 || i == 11) throw std::runtime_error(std::to_string(i));
        ++ended;
      });
      FAIL() << "no exception";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "5");
      EXPECT_EQ(ended, GetParam() > 1 ? 14 : 5);
    }
  }
}

TEST_P(ParallelFor, AJobHasTheModulesPathAndOneThread) {
  const ScopedIntraOpThreads alone;
  const ModulePathScope scope("layers.2");
  std::atomic<int> right = 0;
  parallel_for(8, long_enough, [&](int) {
    compute_for(std::chrono::microseconds(50));
    if (at::get_num_threads() == 1 && current_module_path() && *current_module_path() == "layers.2") ++right;
  });
  EXPECT_EQ(right, 8);
}

TEST_P(ParallelFor, AJobWithJobsOfItsOwnRunsThemInOrder) {
  const ScopedIntraOpThreads alone;
  std::vector<std::vector<int>> orders(4);
  parallel_for(4, long_enough, [&](int i) { parallel_for(5, long_enough, [&](int k) { orders[i].push_back(k); }); });
  for (const auto& order : orders) EXPECT_EQ(order, (std::vector{0, 1, 2, 3, 4}));
}

TEST_P(ParallelFor, ThreadsOfTheProgramMayCallAtOnce) {
  std::atomic<int> runs = 0;
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t)
    callers.emplace_back([&] {
      const ScopedIntraOpThreads alone;
      for (int round = 0; round < 100; ++round) parallel_for(9, long_enough, [&](int) { ++runs; });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(runs, 4 * 100 * 9);
}

TEST_P(ParallelFor, UnderAModeOfLibTorchsAllIsDoneHere) {
  const ScopedIntraOpThreads alone;
  const c10::InferenceMode mode;
  const auto here = std::this_thread::get_id();
  parallel_for(8, long_enough, [&](int) {
    compute_for(std::chrono::microseconds(50));
    EXPECT_EQ(std::this_thread::get_id(), here);
  });
}

TEST_P(ParallelFor, OutsideOfTheScopeNothingHasChanged) {
  {
    const ScopedIntraOpThreads alone;
    EXPECT_EQ(at::get_num_threads(), 1);
    { const ScopedIntraOpThreads again; }
    EXPECT_EQ(at::get_num_threads(), 1);
    std::thread([] { EXPECT_GT(at::get_num_threads(), 0); }).join();
  }
  EXPECT_EQ(at::get_num_threads(), GetParam());
  const ScopedIntraOpThreads off(false);
  EXPECT_EQ(at::get_num_threads(), GetParam());
}

TEST_P(ParallelFor, LeavesACoreToEveryThreadThatMakesBatches) {
  const ScopedIntraOpThreads alone;
  const std::thread::id here = std::this_thread::get_id();
  // Counts the jobs that another thread runs. Each job waits for the first of these for at most `patience`.
  const auto elsewhere = [&](std::chrono::microseconds patience) {
    std::atomic<int> jobs = 0;
    parallel_for(64, long_enough, [&](int) {
      jobs += std::this_thread::get_id() != here;
      const auto began = std::chrono::steady_clock::now();
      while (jobs == 0 && std::chrono::steady_clock::now() - began < patience) std::this_thread::yield();
    });
    return jobs.load();
  };
  {
    const std::vector<BackgroundThreadCount> loaders(static_cast<size_t>(GetParam() - 1));
    EXPECT_EQ(elsewhere(std::chrono::microseconds(100)), 0);
  }
  if (GetParam() > 1) {
    EXPECT_GT(elsewhere(std::chrono::seconds(10)), 0);
  }
}

TEST_P(ParallelFor, AddsUpInOneOrder) {
  const ScopedIntraOpThreads alone;
  Tensors terms;
  for (int i = 0; i < 5; ++i) terms.push_back(at::randn({123, 457}));
  const at::Tensor sum = sum_tensors(terms);
  at::Tensor expected = terms[0];
  for (int i = 1; i < 5; ++i) expected = expected.add(terms[i]);
  EXPECT_TRUE(sum.equal(expected));
  EXPECT_TRUE(sum_each({terms, {terms[0]}})[0].equal(expected));
  for (at::Tensor& t : terms) t = t.t();
  EXPECT_TRUE(sum_tensors(terms).equal(expected.t()));
}

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1e-6 * (used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

TEST(AddUp, NothingAddsNothing) {
  const at::Tensor x = at::randn({3, 5}), nothing = zero_placeholder(x);
  EXPECT_TRUE(at::equal(nothing, at::zeros({3, 5})));
  EXPECT_EQ(nothing.storage().nbytes(), sizeof(float));
  EXPECT_TRUE(sum_tensors({nothing, x, nothing}).is_same(x));
  EXPECT_TRUE(at::equal(sum_tensors({nothing, nothing}), at::zeros({3, 5})));
  EXPECT_TRUE(at::add(nothing, at::full({3, 5}, -0.0)).signbit().all().item<bool>());
  EXPECT_FALSE(at::add(nothing, at::zeros({3, 5})).signbit().any().item<bool>());
  const at::Tensor most = at::full({}, std::numeric_limits<int64_t>::min(), at::kLong).expand({3});  // the bits of -0.0
  EXPECT_EQ(sum_tensors({most, at::ones({3}, at::kLong)})[0].item<int64_t>(), std::numeric_limits<int64_t>::min() + 1);
  EXPECT_TRUE(at::equal(sum_tensors({x, at::ones({}).expand({3, 5}), nothing}), x.add(1)));
}

TEST(AddUp, InDoubleASumIsRoundedOnce) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16})
    for (const int64_t n : {1, 511, 4096}) {
      Tensors terms;
      at::Tensor exact = at::zeros({n}, at::kDouble);
      for (int i = 0; i < 9; ++i) {
        terms.push_back(at::randn({n}).mul(std::pow(10.0, i - 4)).to(dtype));
        exact = exact.add(terms.back());
      }
      EXPECT_TRUE(at::equal(sum_tensors_in_double(terms), exact.to(dtype))) << n;
    }
  const at::Tensor strided = at::randn({4, 6}).t();
  EXPECT_TRUE(at::equal(sum_tensors_in_double({strided, strided}), strided.mul(2)));
}

TEST_P(ParallelFor, AProgramThatDoesNothingUsesNoCore) {
  {
    const ScopedIntraOpThreads alone;
    parallel_for(8, long_enough, [](int) { compute_for(std::chrono::microseconds(100)); });
  }
  std::this_thread::sleep_for(std::chrono::seconds(1));  // on a busy machine, threads take time to start
  const double before = processor_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(processor_seconds() - before, 0.1);
}

TEST_P(ParallelFor, AForkedChildComputesAlone) {
  const ScopedIntraOpThreads alone;
  parallel_for(8, long_enough, [](int) {});
  if (const pid_t child = fork(); child == 0) {
    std::atomic<int> runs = 0;
    parallel_for(8, long_enough, [&](int) { ++runs; });
    _exit(runs == 8 ? 0 : 1);
  } else {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

TEST_P(ParallelFor, SignalsOfTheProgramGoToItsOwnThreads) {
  const ScopedIntraOpThreads alone;
  const auto here = std::this_thread::get_id();
  parallel_for(8, long_enough, [&](int) {
    compute_for(std::chrono::microseconds(50));
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    EXPECT_EQ(sigismember(&blocked, SIGTERM), std::this_thread::get_id() == here ? 0 : 1);
  });
}

}  // namespace
}  // namespace tessera::detail::parallel_for_test
