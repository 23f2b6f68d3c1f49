// Measures the cost of a Profile in a transformer's training step, and the cost of its hooks when it is off.
//
//   profile [rounds]
//
// Sizes are train_step's. A round is one step without and one with a profile, and each is first in every other round.
// The figure is the median of the rounds' ratios, with their quartiles, next to the ratio of the minimum times. If no
// profile is active, a hook reads a variable of the thread: its time and a step's number of hooks give its fraction of
// the step.
#include "nn/report/profile.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "data/batches/to_global.h"
#include "data/batches/token_batch.h"
#include "examples/transformer.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/value_and_grad.h"
#include "optim/optimizer.h"
#include "sharding/accounting/operation_event.h"
#include "sharding/events/observer.h"
#include "sharding/random/random.h"
#include "tests/benchmarks/timing.h"

namespace {

using namespace tessera;

struct Size {
  const char* name;
  std::vector<MeshAxis> mesh;
  examples::GptConfig model;
  int64_t batch;
};

const std::vector<Size> sizes{
    {"tiny, 1 device", {{"data", 1}}, {.vocab = 256, .embed = 64, .heads = 8, .layers = 2, .seq = 32, .mlp = 256}, 16},
    {"tiny, 4 devices", {{"data", 4}}, {.vocab = 256, .embed = 64, .heads = 8, .layers = 2, .seq = 32, .mlp = 256}, 16},
    {"mid, 1 device",
     {{"data", 1}},
     {.vocab = 256, .embed = 256, .heads = 8, .layers = 4, .seq = 128, .mlp = 1024},
     16},
};

struct Training {
  explicit Training(const Size& size)
      : mesh_rules(make_mesh(size.mesh), examples::with_all_names({{"batch", "data"}})),
        model(nn::filter_shard(examples::Gpt::init(Key(0), size.model), mesh_rules)),
        optimizer(model, optim::chain(optim::clip_by_global_norm(1.0), optim::adamw({.learning_rate = 1e-3}))) {
    data::TokenBatch rows;
    rows.inputs = randint(Key(1), {size.batch, size.model.seq}, 0, size.model.vocab);
    rows.targets = randint(Key(2), {size.batch, size.model.seq}, 0, size.model.vocab);
    batch = data::from_process_local(rows, mesh_rules);
  }
  void step() {
    const auto [loss, grads] =
        nn::value_and_grad(examples::next_token_loss<examples::Gpt, data::TokenBatch>)(model, batch);
    optimizer.update(model, grads);
    last = loss.item<float>();
  }

  MeshRules mesh_rules;
  examples::Gpt model;
  decltype(optim::Optimizer(
      std::declval<const examples::Gpt&>(),
      optim::chain(optim::clip_by_global_norm(1.0), optim::adamw({.learning_rate = 1e-3})))) optimizer;
  data::TokenBatch batch;
  float last = 0;
};

// Returns a quantile of sorted numbers.
double at(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
}

double time_of(const std::function<void()>& f) {
  return benchmarks::microseconds(1, [&](int) { f(); });
}

void compare(const Size& size, int rounds) {
  Training training(size);
  for (int i = 0; i < 3; ++i) training.step();
  std::vector<double> off, on, ratios;
  double slices = 0;
  const auto plain = [&] { off.push_back(time_of([&] { training.step(); })); };
  const auto profiled = [&] {
    nn::Profile profile;
    on.push_back(time_of([&] {
      training.step();
      profile.step();
    }));
    slices = static_cast<double>(profile.report().processes()[0].steps[0].slices.size());
  };
  for (int r = 0; r < rounds; ++r) {
    r % 2 ? plain() : profiled();
    r % 2 ? profiled() : plain();
    ratios.push_back(on.back() / off.back());
  }
  std::sort(ratios.begin(), ratios.end());
  const benchmarks::Times without = benchmarks::summary(off), with = benchmarks::summary(on);
  constexpr int calls = 1000;
  const double look = benchmarks::time(200, calls, [](int) {
                        const tessera::detail::ActivityScope scope(tessera::detail::Activity::update);
                        if (tessera::detail::are_operations_observed()) std::abort();
                      }).least;
  std::printf("%-16s %10.3f %10.3f %+8.2f %% (%+.2f to %+.2f) %+8.2f %% %8.0f %9.4f %%\n", size.name,
              without.median / 1e3, with.median / 1e3, 100 * at(ratios, 0.5) - 100, 100 * at(ratios, 0.25) - 100,
              100 * at(ratios, 0.75) - 100, 100 * with.least / without.least - 100, slices,
              100 * look * slices / without.median);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 100;
  std::printf("%-16s %10s %10s %28s %10s %8s %11s\n", "", "off, ms", "on, ms", "median of ratios (quartiles)",
              "of leasts", "slices", "hooks off");
  for (const Size& size : sizes) compare(size, size.name[0] == 'm' ? rounds / 4 : rounds);
  return 0;
}
