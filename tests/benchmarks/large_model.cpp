// Measures a model of 100 module types without its arithmetic: walks, tables, gradients, updates, per parameter.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <cstdio>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "nn/placement/filter_shard.h"
#include "nn/placement/table.h"
#include "nn/transformations/value_and_grad.h"
#include "nn/tree/state.h"
#include "nn/tree/tree_equal.h"
#include "nn/tree/tree_summary.h"
#include "optim/optimizer.h"
#include "sharding/operations.h"
#include "tests/benchmarks/timing.h"

namespace {

using namespace tessera;

constexpr int types = 100;

// Two types for each number: a module, and its part.
template <int number>
struct Part {
  nn::Param kernel{ones({2, 2}), {"embed", "hidden"}};
  nn::Param bias{ones({2}), {"hidden"}};
};
template <int number>
struct Module {
  std::vector<Part<number>> parts;
  double eps = 1e-5;
};

template <class Numbers>
struct ManyModules;
template <size_t... number>
struct ManyModules<std::index_sequence<number...>> {
  std::tuple<Module<number>...> modules;
};
using Model = ManyModules<std::make_index_sequence<types>>;

Model make_model(int parameters) {
  Model model;
  std::apply([&](auto&... module) { (module.parts.resize(parameters / (2 * types)), ...); }, model.modules);
  return model;
}

// One operation per parameter, so that the walk and the tape dominate.
Array sum_of_first(const Model& model) { return sum(std::get<0>(model.modules).parts[0].kernel); }
Array sum_of_all(const Model& model) {
  Array total = zeros({});
  for (const Array& x : nn::tree_leaves(model)) total = total + sum(x);
  return total;
}

// Returns the blocks of such a model on four devices as LibTorch tensors: four per kernel, two per bias.
std::vector<at::Tensor> make_blocks(int parameters) {
  std::vector<at::Tensor> blocks;
  for (int i = 0; i < parameters / 2; ++i)
    for (int block = 0; block < 6; ++block)
      blocks.push_back(at::ones(block < 4 ? std::vector<int64_t>{1, 1} : std::vector<int64_t>{1}).requires_grad_());
  return blocks;
}

// Computes sum_of_all and its gradient on these blocks: a running total on each device.
void raw_gradients(const std::vector<at::Tensor>& blocks) {
  std::array<at::Tensor, 4> totals;
  totals.fill(at::zeros({}));
  for (size_t i = 0; i < blocks.size(); i += 6) {
    for (size_t device = 0; device < 4; ++device) totals[device] = totals[device] + blocks[i + device].sum();
    const std::array<at::Tensor, 2> bias{blocks[i + 4].sum(), blocks[i + 5].sum()};
    for (size_t device = 0; device < 4; ++device) totals[device] = totals[device] + bias[device % 2];
  }
  torch::autograd::grad({totals[0] + totals[1] + totals[2] + totals[3]}, blocks);
}

double nanoseconds(int rounds, const std::function<void()>& call) {
  return 1e3 * benchmarks::time(rounds, 1, [&](int) { call(); }).median;
}

struct Subject {
  explicit Subject(int parameters)
      : unplaced(make_model(parameters)),
        model(nn::filter_shard(unplaced, mesh_rules)),
        grads(nn::tree_map([](const Array& x) { return x * 0.5; }, model)),
        optimizer(model, optim::adamw({.learning_rate = 1e-3})),
        blocks(make_blocks(parameters)) {}

  MeshRules mesh_rules{make_mesh({{"data", 2}, {"model", 2}}), {{"embed", "data"}, {"hidden", "model"}}};
  Model unplaced, model, grads;
  optim::Optimizer<Model, decltype(optim::adamw({.learning_rate = 1e-3}))> optimizer;
  std::vector<at::Tensor> blocks;
};

struct Row {
  const char* what;
  std::function<void(Subject&)> call;
};

}  // namespace

int main() {
  const std::vector<Row> rows{
      {"copy of the model", [](Subject& s) { const Model copy = s.model; }},
      {"bare_arrays", [](Subject& s) { nn::bare_arrays(s.model); }},
      {"leaves, with paths", [](Subject& s) { nn::leaves(s.model); }},
      {"tree_map of nothing", [](Subject& s) { nn::tree_map([](const Array& x) { return x; }, s.model); }},
      {"partition by path", [](Subject& s) { nn::partition(s.model, nn::by_path("modules.*.parts.**.bias")); }},
      {"state", [](Subject& s) { nn::state(s.model); }},
      {"tree_summary", [](Subject& s) { nn::tree_summary(s.model, {.depth = 2}); }},
      {"tree_equal, the same arrays", [](Subject& s) { nn::tree_equal(s.model, s.model); }},
      {"placement_table", [](Subject& s) { nn::placement_table(s.model).to_text(); }},
      {"placement_table before placing", [](Subject& s) { nn::placement_table(s.unplaced, s.mesh_rules).to_text(); }},
      {"filter_shard", [](Subject& s) { (void)nn::filter_shard(s.unplaced, s.mesh_rules); }},
      {"value_and_grad, one parameter used", [](Subject& s) { nn::value_and_grad(sum_of_first)(s.model); }},
      {"value_and_grad, all used", [](Subject& s) { nn::value_and_grad(sum_of_all)(s.model); }},
      {"  the same in LibTorch alone", [](Subject& s) { raw_gradients(s.blocks); }},
      {"Optimizer::update (adamw)", [](Subject& s) { s.optimizer.update(s.model, s.grads); }},
  };
  // A model of 1,000 parameters fits into the CPU caches; one of 10,000 does not. Superlinear costs grow further.
  Subject small(1000), large(10000), huge(100000);
  std::printf("%-36s %10s %10s %10s %18s\n", "nanoseconds per parameter", "of 1,000", "of 10,000", "of 100,000",
              "100,000 / 10,000");
  for (const Row& row : rows) {
    const double one = nanoseconds(11, [&] { row.call(small); }) / 1000;
    const double ten = nanoseconds(11, [&] { row.call(large); }) / 10000;
    const double hundred = nanoseconds(3, [&] { row.call(huge); }) / 100000;
    std::printf("%-36s %10.0f %10.0f %10.0f %18.2f\n", row.what, one, ten, hundred, hundred / ten);
    std::fflush(stdout);
  }
}
