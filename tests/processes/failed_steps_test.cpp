// A step that fails on all processes while parts of the model are being communicated changes nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "nn/layers/linear.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/value_and_grad.h"
#include "optim/optimizer.h"
#include "sharding/array/autograd.h"
#include "sharding/autodiff/weights/prefetch_schedule.h"
#include "sharding/redistribution/engine.h"
#include "sharding/runtime/processes.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/law.h"

namespace tessera::failed_steps_test {
namespace {

using namespace tessera::testing;

constexpr int layers = 4;

struct Net {
  std::vector<nn::Linear> layers;

  static Net init(int64_t width) {
    Net net;
    for (const Key& k : split(Key(0), failed_steps_test::layers))
      net.layers.push_back(nn::Linear::init(k, {"embed", width}, {"hidden", width}));
    return net;
  }
};

struct Failure {
  bool in_backward_pass;
  int layer;
};

struct Training {
  int64_t width;
  bool is_sharded;  // false: ZeRO-1
  int prefetch_groups = 1;
};

void fail_now() { throw std::runtime_error("stop"); }

Array loss_of(const Net& net, const Array& x, const std::optional<Failure>& failure, Array& last) {
  Array y = x;
  for (int i = 0; i < layers; ++i) {
    last = y = tanh(net.layers[i](y));
    if (!failure || failure->layer != i) continue;
    if (!failure->in_backward_pass) fail_now();
    detail::before_backward(y.impl()->local, fail_now);
  }
  return mean(square(y));
}

Net trained(const Training& how, const std::optional<Failure>& failure) {
  const Rules sharded{{"embed", "data"}, {"hidden", replicated}}, whole{{"embed", replicated}, {"hidden", replicated}};
  const MeshRules mesh_rules{make_mesh({{"data", process_count()}}), how.is_sharded ? sharded : whole};
  Net net = nn::filter_shard(Net::init(how.width), mesh_rules);
  const std::vector<std::string> cut = how.is_sharded ? std::vector<std::string>{} : std::vector<std::string>{"data"};
  auto optimizer = optim::Optimizer(net, optim::adamw({.learning_rate = 1e-3}), {.shard_state_over = cut});
  const Array x = device_put(normal(Key(9), {16, how.width}), NamedSharding(mesh_rules.mesh(), P{"data"}));
  const GradientOptions options{.prefetch_groups = how.prefetch_groups, .shard_gradients_over = cut};
  for (int step = 0; step < 4; ++step) {
    Array last;  // an array of the failed step; keeps its graph alive
    const auto fails = [&](const Net& n, const Array& rows) { return loss_of(n, rows, failure, last); };
    if (failure && step > 0) {
      const int64_t new_parameters = detail::works_under_way();
      EXPECT_THROW(nn::value_and_grad(fails, options)(net, x), std::runtime_error);
      EXPECT_LE(detail::works_under_way(), new_parameters) << "before step " << step;
    }
    const auto succeeds = [](const Net& n, const Array& rows) {
      Array ignored;
      return loss_of(n, rows, {}, ignored);
    };
    const auto [loss, grads] = nn::value_and_grad(succeeds, options)(net, x);
    optimizer.update(net, grads);
  }
  return net;
}

void expect_no_trace(const Training& how) {
  detail::clear_gather_orders();
  Net expected = trained(how, {});
  for (const bool in_backward_pass : {false, true})
    for (int layer = 0; layer < layers; ++layer) {
      SCOPED_TRACE(fmt::format("layer {} {}", layer, in_backward_pass ? "backward" : "forward"));
      Net given = trained(how, Failure{in_backward_pass, layer});
      const nn::Leaves ours = nn::leaves(given), theirs = nn::leaves(expected);
      for (size_t i = 0; i < ours.size(); ++i)
        EXPECT_TRUE(at::equal(tessera::testing::whole(*ours[i].value), tessera::testing::whole(*theirs[i].value)))
            << ours[i].path;
      EXPECT_EQ(detail::works_under_way(), 0);
    }
}

TEST(FailedSteps, LeaveNoTraceWhereWeightsAreGathered) {
  for (const int prefetch : {0, 1, 2, 100}) {
    SCOPED_TRACE(fmt::format("{} ahead", prefetch));
    expect_no_trace({.width = 48, .is_sharded = true, .prefetch_groups = prefetch});
  }
}

// Each layer is one chunk: its all_reduce begins in the backward pass, and its new parameters are gathered.
TEST(FailedSteps, LeaveNoTraceWhereNewParametersAreOnTheirWay) {
  expect_no_trace({.width = 1056, .is_sharded = false});
}

TEST(FailedSteps, OfABadBatchAreFollowedByTheNext) {
  const Mesh mesh = make_mesh({{"data", process_count()}});
  const Net net = nn::filter_shard(Net::init(48), MeshRules{mesh, {{"embed", "data"}, {"hidden", replicated}}});
  const auto loss = [](const Net& n, const Array& x) {
    Array last;
    return loss_of(n, concatenate({x, x}, 1), {}, last);
  };
  const auto step = [&](int64_t width) {
    const Array x = device_put(normal(Key(9), {16, width}), NamedSharding(mesh, P{"data"}));
    auto [value, grads] = nn::value_and_grad(loss, {.prefetch_groups = 2})(net, x);
    return *nn::leaves(grads).front().value;
  };
  step(24);
  const at::Tensor expected = whole(step(24));
  EXPECT_THROW(step(48), Error);
  EXPECT_EQ(detail::works_under_way(), 0);
  EXPECT_TRUE(at::equal(whole(step(24)), expected));
}

}  // namespace
}  // namespace tessera::failed_steps_test
