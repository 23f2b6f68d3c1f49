// Trains in several processes until one of them fails while a collective is in flight.
//
// training_victim MOMENT KIND PROCESS [PREFETCH [STEPS]]. The moments are in the middle step. "forward" and "backward":
// sharded weights are prefetched, and their gradients reduce-scattered. "sums": gradients of ZeRO-1 are being reduced.
// "update": its new parameters are being gathered.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "nn/layers/linear.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/value_and_grad.h"
#include "optim/optimizer.h"
#include "sharding/array/autograd.h"
#include "sharding/base/error.h"
#include "sharding/operations.h"
#include "sharding/placement.h"
#include "sharding/random.h"
#include "sharding/redistribution/engine.h"
#include "sharding/runtime/processes.h"
#include "tests/processes/harm.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

struct Layer {
  nn::Linear up, down;
  Array operator()(const Array& x) const { return x + down(tanh(up(x))); }
};

// Four layers. Two layers exceed one chunk of gradients, so a step reduces its gradients in several chunks.
struct Net {
  std::vector<Layer> layers;
  static Net init(Key key) {
    const Axis embed{"embed", 384}, hidden{"hidden", 768};
    Net net;
    for (const Key k : split(key, 4)) {
      const auto [up, down] = split<2>(k);
      net.layers.push_back({nn::Linear::init(up, embed, hidden), nn::Linear::init(down, hidden, embed)});
    }
    return net;
  }
};

struct Plan {
  std::string moment, kind;
  int victim = 0, prefetch_groups = 1, steps = 6;

  bool is_sharded() const { return moment == "forward" || moment == "backward"; }
};

// Lets this process fail once, at the moment of the plan.
class Fate {
 public:
  explicit Fate(const Plan& plan) : plan_(plan) {}
  void begin_step(int step) { is_due_ = step == plan_.steps / 2 && process_index() == plan_.victim; }
  void come_to(const std::string& moment) {
    if (is_due_ && moment == plan_.moment) testing::suffer(plan_.kind);
  }

 private:
  const Plan& plan_;
  bool is_due_ = false;
};

void train(const Plan& plan, Fate& fate, Net& model, Clock::time_point& begin) {
  const Rules sharded{{"embed", "data"}, {"hidden", replicated}}, whole{{"embed", replicated}, {"hidden", replicated}};
  const MeshRules mesh_rules{make_mesh({{"data", process_count()}}), plan.is_sharded() ? sharded : whole};
  model = nn::filter_shard(Net::init(Key(0)), mesh_rules);
  const std::vector<std::string> cut =
      plan.is_sharded() ? std::vector<std::string>{} : std::vector<std::string>{"data"};
  auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = 1e-3}), {.shard_state_over = cut});
  const Array x = with_sharding_constraint(normal(Key(1), {12, 384}), NamedSharding(mesh_rules.mesh(), P{"data"}));
  const auto loss_of = [&](const Net& net, const Array& rows) {
    Array y = rows;
    for (size_t i = 0; i < net.layers.size(); ++i) {
      y = net.layers[i](y);
      if (i != 1) continue;
      fate.come_to("forward");
      const auto in_backward_pass = [&fate] { fate.come_to("backward"), fate.come_to("sums"); };
      detail::before_backward(y.impl()->local, in_backward_pass);
    }
    return mean(square(y));
  };
  for (int step = 0; step < plan.steps; ++step) {
    begin = Clock::now();
    fate.begin_step(step);
    const auto [loss, grads] =
        nn::value_and_grad(loss_of, {.prefetch_groups = plan.prefetch_groups, .shard_gradients_over = cut})(model, x);
    optimizer.update(model, grads);
    fate.come_to("update");
  }
}

// Waits for all new parameters. Returns how many of them are lost.
int lost_parameters(Net& model) {
  int lost = 0;
  for (const nn::Leaf& leaf : nn::leaves(model)) try {
      detail::materialized(*leaf.value, "training_victim");
    } catch (const Error&) {
      ++lost;
    }
  return lost;
}

int run(const Plan& plan) {
  Fate fate(plan);
  Net model;
  Clock::time_point begin = Clock::now();
  try {
    train(plan, fate, model, begin);
    return lost_parameters(model);
  } catch (const Error& error) {
    const std::chrono::duration<double> waited = Clock::now() - begin;
    std::fprintf(stderr, "%s\n", error.what());
    const int lost = lost_parameters(model);
    std::fprintf(stderr, "after %.1f s, %d begun, %d lost\n", waited.count(),
                 static_cast<int>(detail::works_under_way()), lost);
    return 1;
  }
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  const auto number = [&](int i, int otherwise) { return argc > i ? std::atoi(argv[i]) : otherwise; };
  const tessera::Plan plan{argc > 1 ? argv[1] : "never", argc > 2 ? argv[2] : "none", number(3, 0), number(4, 1),
                           number(5, 6)};
  return tessera::run_program([&] { return tessera::run(plan); });
}
