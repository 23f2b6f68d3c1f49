// The memory of a training step: after the first steps it requests no more from the system.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "nn/layers/linear.h"
#include "nn/placement.h"
#include "nn/transformations.h"
#include "optim/optimizer.h"
#include "sharding/kernels.h"
#include "sharding/operations.h"
#include "sharding/random.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::step_memory_test {
namespace {

struct Mlp {
  nn::Linear up, down;
  Array operator()(const Array& x) const { return down(gelu(up(x))); }
};

Array loss_of(const Mlp& model, const Array& x) { return mean(square(model(x) - x)); }

int64_t pages_asked_for() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return used.ru_minflt;
}

class StepMemory : public ::testing::TestWithParam<Rules> {};

TEST_P(StepMemory, AsksForNoPagesAfterTheThirdStep) {
  if (!use_caching_cpu_allocator()) GTEST_SKIP() << "the environment configures glibc's allocator";
  const Axis embed{"embed", 256}, hidden{"hidden", 1024};
  const MeshRules mesh_rules(make_mesh({{"data", 8}}), GetParam());
  const auto [k1, k2] = split<2>(Key(0));
  Mlp model =
      nn::filter_shard(Mlp{nn::Linear::init(k1, embed, hidden), nn::Linear::init(k2, hidden, embed)}, mesh_rules);
  optim::Optimizer optimizer(model, optim::adamw({.learning_rate = 1e-3}));
  const Array x = device_put(normal(Key(1), {512, 256}), {"batch", none}, mesh_rules);
  const auto step = [&] {
    const auto [loss, gradients] = nn::value_and_grad(loss_of)(model, x);
    optimizer.update(model, gradients);
    return loss.item<double>();
  };
  for (int i = 0; i < 3; ++i) step();
  // The tensors of one step take 2,000 pages. The C library returns some memory of small values, and takes it again.
  constexpr int steps = 20;
  const int64_t held = detail::memory_of_tensors();
  int64_t pages = 0;
  int without = 0;
  for (int i = 0; i < steps; ++i) {
    const int64_t before = pages_asked_for();
    step();
    pages += pages_asked_for() - before;
    without += pages_asked_for() == before;
  }
  EXPECT_EQ(detail::memory_of_tensors(), held);
  EXPECT_LT(pages, 2000);
  EXPECT_GE(without, steps / 2);
}

INSTANTIATE_TEST_SUITE_P(Placements, StepMemory,
                         ::testing::Values(Rules{{"batch", "data"}, {"embed", replicated}, {"hidden", replicated}},
                                           Rules{{"batch", "data"}, {"embed", "data"}, {"hidden", replicated}}));

}  // namespace
}  // namespace tessera::step_memory_test
