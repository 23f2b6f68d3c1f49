// Counts how often a GPU's compute stream waits for communication between processes: never if it has finished.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "sharding/array/autograd.h"
#include "sharding/autodiff/weights/prefetch_schedule.h"
#include "sharding/runtime/processes.h"
#include "tests/sharding/law.h"

namespace tessera {
namespace {

using namespace tessera::testing;

constexpr int64_t layers = 4, width = 48, rows = 16;

// A function of tests/cuda/pretended_cuda.h; null if the GPU is not pretended.
template <class Function>
Function* pretended(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
}

// The time at which a collective in flight finishes.
enum class Pace : uint8_t {
  when_waited_for,  // only when the compute stream waits for it
  in_time,          // after each layer, forward and backward
};

struct Pass {
  std::vector<Array> gradients;
  int64_t forward_waits = 0, backward_waits = 0;
  int64_t forward_gathers = 0, backward_gathers = 0, scatters = 0;
};

class Waits : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!pretended<int64_t()>("pretended_gpu_waits")) GTEST_SKIP() << "the GPU is not pretended";
    detail::clear_gather_orders();
    mesh_ = make_mesh({{"data", process_count()}});
    for (int64_t i = 0; i < 2 * layers; ++i) {
      weights_.push_back(device_put(normal(Key(i), {width, width}) * 0.2, NamedSharding(*mesh_, P{"data"})));
      weights_.back().impl()->detail().path = detail::as_text(fmt::format("layers.{}.{}", i / 2, i % 2));
    }
    x_ = device_put(normal(Key(99), {rows, width}), NamedSharding(*mesh_, P{"data"}));
    pass_of({}, Pace::in_time);  // creates the communicators
  }
  void TearDown() override {
    if (const auto stands_still = pretended<void(bool)>("pretended_gpu_stands_still")) stands_still(false);
  }

  static int64_t waits() { return pretended<int64_t()>("pretended_gpu_waits")(); }
  static void go_on(Pace pace) {
    if (pace == Pace::in_time) pretended<void()>("pretended_gpu_catches_up")();
  }

  Pass pass_of(const GradientOptions& options, Pace pace) const {
    Pass pass;
    CommLedger ledger;
    Tape tape(weights_, options);
    const auto& w = tape.shadows();
    pretended<void(bool)>("pretended_gpu_stands_still")(true);
    const int64_t before = waits();
    Array y = x_;
    for (int64_t i = 0; i < layers; ++i) {
      y = tanh(matmul(matmul(y, w[2 * i]), w[2 * i + 1]));
      go_on(pace);
      detail::before_backward(y.impl()->local, [pace] { go_on(pace); });
    }
    const Array loss = sum(y * y);
    pass.forward_waits = waits() - before;
    pass.forward_gathers = ledger.count("all_gather");
    pass.gradients = tape.gradients(loss);
    pass.backward_waits = waits() - before - pass.forward_waits;
    pass.backward_gathers = ledger.count("all_gather") - pass.forward_gathers;
    pass.scatters = ledger.count("reduce_scatter");
    pretended<void(bool)>("pretended_gpu_stands_still")(false);
    return pass;
  }

  // A step that prefetches by the gather order that a first step recorded.
  Pass second_pass(int prefetch, Pace pace) const {
    detail::clear_gather_orders();
    const GradientOptions options{.prefetch_groups = prefetch};
    pass_of(options, Pace::in_time);
    return pass_of(options, pace);
  }

  std::optional<Mesh> mesh_;
  std::vector<Array> weights_;
  Array x_;
};

// All collectives run on one stream: if the program has waited for one, all earlier ones have finished, too. In the
// backward pass, gathers (g) and reduce_scatters (s) of four layers are begun in these orders:
//   0 ahead   g3 s3 g2 s2 g1 s1 g0 s0     a scatter is finished when the next gather is
//   1 ahead   g3 g2 s3 g1 s2 g0 s1 s0     each is waited for
//   2 ahead   g3 g2 g1 s3 g0 s2 s1 s0     g1 is finished when s3 is, and g0 when s2 is
TEST_F(Waits, AreOneForEachCollectiveThatIsNotThere) {
  for (const auto& [prefetch, backward] : {std::pair{0, 5}, {1, 8}, {2, 6}}) {
    SCOPED_TRACE(fmt::format("{} ahead", prefetch));
    const Pass pass = second_pass(prefetch, Pace::when_waited_for);
    EXPECT_EQ(pass.forward_gathers + pass.backward_gathers, 2 * layers);
    EXPECT_EQ(pass.scatters, layers);
    EXPECT_EQ(pass.forward_waits, layers);
    EXPECT_EQ(pass.backward_waits, backward);
  }
}

// Two collectives are waited for: the first gather, before which no work can hide it, and the last reduce_scatter,
// after which none can.
TEST_F(Waits, AreNoneForWhatWasBegunAheadAndCameInTime) {
  for (const int prefetch : {1, 2, 100}) {
    SCOPED_TRACE(fmt::format("{} ahead", prefetch));
    const Pass pass = second_pass(prefetch, Pace::in_time);
    EXPECT_EQ(pass.forward_waits, 1);
    EXPECT_EQ(pass.backward_waits, 1);
  }
}

TEST_F(Waits, WithoutPrefetchAreOneForEachGather) {
  const Pass pass = second_pass(0, Pace::in_time);
  EXPECT_EQ(pass.forward_waits, layers);
  EXPECT_EQ(pass.backward_waits, layers + 1);
}

TEST_F(Waits, ChangeNoBits) {
  const Pass expected = second_pass(0, Pace::in_time);
  for (const Pace pace : {Pace::when_waited_for, Pace::in_time}) {
    const Pass given = second_pass(2, pace);
    for (size_t i = 0; i < weights_.size(); ++i)
      EXPECT_EQ(difference(whole(given.gradients[i]), whole(expected.gradients[i])), 0) << "parameter " << i;
  }
}

}  // namespace
}  // namespace tessera
