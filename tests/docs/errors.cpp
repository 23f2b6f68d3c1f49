// The programs of docs/errors.md: a wrong and a right one for each kind of error; exceptions of custom functions.
#include <cstdlib>
#include <functional>
#include <iostream>
#include <random>
#include <regex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tessera/data/batches.h>
#include <tessera/data/loader.h>
#include <tessera/data/sources.h>
#include <tessera/nn/checkpoint.h>
#include <tessera/nn/layers/activation.h>
#include <tessera/nn/layers/batch_norm.h>
#include <tessera/nn/layers/linear.h>
#include <tessera/nn/layers/mlp.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/transformations.h>
#include <tessera/nn/tree.h>
#include <tessera/optim/optimizer.h>
#include <tessera/sharding/accounting.h>
#include <tessera/sharding/base.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/placement.h>
#include <tessera/sharding/random.h>
#include <tessera/sharding/shard_map.h>

#include "tests/sharding/limited_memory.h"

using namespace tessera;

const nn::Linear linear = nn::Linear::init(Key(0), {"embed", 6}, {"hidden", 4});

void not_divisible(const Mesh& m) {
  auto model = nn::filter_shard(linear, MeshRules{m, {{"embed", "data"}, {"hidden", replicated}}});  // wrong
}

void divisible(const Mesh& m) {
  auto model = nn::filter_shard(linear, MeshRules{m, {{"embed", replicated}, {"hidden", "data"}}});  // right
}

void unknown_logical_axis(const Mesh& m) {
  auto model = nn::filter_shard(linear, MeshRules{m, {{"embed", replicated}}});  // wrong
}

void declared_axis(const Mesh& m) {
  auto model = nn::filter_shard(linear, MeshRules{m, {{"embed", replicated}, {"hidden", replicated}}});  // right
}

void unknown_mesh_axis(const Mesh& mesh) { NamedSharding(mesh, P{"modle"}); }

void collective_outside(const Mesh&) { psum(ones({8}), "data"); }

void duplicate_axis(const Mesh& mesh) {
  NamedSharding(mesh, P{"data", "data"});  // wrong
}

void two_axes(const Mesh& mesh) {
  NamedSharding(mesh, P{"data", "model"});  // right
}

void rank_mismatch(const Mesh& mesh) {
  device_put(ones({8}), NamedSharding(mesh, P{"data", "model"}));  // wrong
}

void same_rank(const Mesh& mesh) {
  device_put(ones({8}), NamedSharding(mesh, P{"data"}));  // right
}

struct Named {
  nn::Param w;
};

void too_many_names(const Mesh& m) {
  (void)nn::filter_shard(Named{{ones({8}), {"embed", "hidden"}}}, MeshRules{m, {}});
}

void unconstrained_dim(const Mesh& mesh) {
  device_put(ones({8, 8}), NamedSharding(mesh, P{"data", unconstrained}));  // wrong
}

void constrained_dim(const Mesh& mesh) {
  const Array x = device_put(ones({8, 8}), NamedSharding(mesh, P{"data", none}));  // right
  with_sharding_constraint(x, P{unconstrained, "model"});                          // right
}

void shape_mismatch(const Mesh&) {
  matmul(ones({8, 6}), ones({4, 8}));  // wrong
}

void same_shape(const Mesh&) {
  matmul(ones({8, 6}), ones({6, 8}));  // right
}

void layer_input(const Mesh&) { linear(ones({2, 5})); }

void loss_of_many(const Mesh&) {
  nn::value_and_grad([](const nn::Linear& model, const Array& x) { return model(x); })(linear, ones({2, 6}));
}

void dtype_mismatch(const Mesh&) {
  cross_entropy(ones({8, 4}), ones({8}));  // wrong
}

void integer_labels(const Mesh&) {
  cross_entropy(ones({8, 4}), astype(ones({8}), int32));  // right
}

void read_as_another(const Mesh&) { ones({8}).to_host<int32_t>(); }

void device_mismatch(const Mesh& mesh) {
  const Array x = device_put(ones({8}), NamedSharding(mesh, P{"data"}));
  const Array y = device_put(ones({8}), NamedSharding(make_mesh({{"data", 4}}), P{"data"}));
  x + y;  // wrong
}

void same_mesh(const Mesh& mesh) {
  const Array x = device_put(ones({8}), NamedSharding(mesh, P{"data"}));
  const Array y = device_put(ones({8}), NamedSharding(make_mesh({{"data", 4}}), P{"data"}));
  x + device_put(y, x.sharding());  // right
}

using Model = std::vector<Array>;

void gradient_elsewhere(const Mesh& mesh) {
  Model model{device_put(ones({8}), NamedSharding(make_mesh({{"data", 4}}), P{"data"}))};
  optim::Optimizer(model, optim::sgd({.learning_rate = 0.1}))
      .update(model, {device_put(ones({8}), NamedSharding(mesh, P{"data"}))});
}

void missing_array(const Mesh&) {
  const auto [kernel, rest] = nn::partition(linear, nn::by_path("kernel"));
  kernel(ones({2, 6}));  // wrong
}

void combined(const Mesh&) {
  const auto [kernel, rest] = nn::partition(linear, nn::by_path("kernel"));
  nn::combine(kernel, rest)(ones({2, 6}));  // right
}

void no_gradient(const Mesh&) {
  const auto loss = [](const nn::Linear&, const Array& x) { return sum(linear(x)); };  // wrong
  nn::value_and_grad(loss)(linear, ones({2, 6}));
}

void gradient(const Mesh&) {
  const auto loss = [](const nn::Linear& model, const Array& x) { return sum(model(x)); };  // right
  nn::value_and_grad(loss)(linear, ones({2, 6}));
}

void invalid_file(const Mesh&) {
  auto model = linear;
  nn::restore("runs/none", nn::named_state("model", model));  // wrong
}

void existing_file(const Mesh&) {
  auto model = linear;
  if (!nn::checkpoint_steps("runs/none").empty()) nn::restore("runs/none", nn::named_state("model", model));  // right
}

void not_utf8(const Mesh&) { data::LineSource::from_string("good\nb\xff")[1]; }

void no_gradients(const Mesh&) {
  Model model{ones({8})};
  optim::Optimizer(model, optim::sgd({.learning_rate = 0.1})).update(model, {Array()});
}

void empty_schedule(const Mesh&) {
  Model model{ones({8})};
  const std::function<double(int64_t)> none;
  optim::Optimizer(model, optim::adam({.learning_rate = none})).update(model, {ones({8})});
}

void moved(const Mesh&) {
  data::Loader loader(data::range(8), data::stack, {.batch_size = 4});
  const data::Loader heir = std::move(loader);
  loader.next();
}

void invalid_argument(const Mesh&) {
  nn::Dropout{.rate = 1.5}(ones({2}), Key(0));  // wrong
}

void valid_argument(const Mesh&) {
  nn::Dropout{.rate = 0.5}(ones({2}), Key(0));  // right
}

void varying_axis(const Mesh& mesh) {
  const auto total = [](const Array& block) { return sum(block); };  // wrong
  shard_map(total, mesh, P{"data"}, P{})(ones({8}));
}

void invarying_axis(const Mesh& mesh) {
  const auto total = [](const Array& block) { return psum(sum(block), "data"); };  // right
  shard_map(total, mesh, P{"data"}, P{})(ones({8}));
}

void size_mismatch(const Mesh& mesh) {
  const auto exchange = [](const Array& block) { return all_to_all(block, "data", 0, 1); };  // wrong
  shard_map(exchange, mesh, P{"data"}, P{none, "data"})(ones({32, 8}));
}

void tiled(const Mesh& mesh) {
  const auto exchange = [](const Array& block) { return all_to_all(block, "data", 0, 1, {.tiled = true}); };  // right
  shard_map(exchange, mesh, P{"data"}, P{none, "data"})(ones({32, 8}));
}

void duplicate_pair(const Mesh& mesh) {
  const std::vector<std::pair<int, int>> pairs{{0, 1}, {2, 1}};  // wrong
  shard_map([&](const Array& block) { return ppermute(block, "data", pairs); }, mesh, P{"data"}, P{"data"})(ones({8}));
}

void distinct_pairs(const Mesh& mesh) {
  const std::vector<std::pair<int, int>> pairs{{0, 1}, {2, 3}};  // right
  shard_map([&](const Array& block) { return ppermute(block, "data", pairs); }, mesh, P{"data"}, P{"data"})(ones({8}));
}

void forbidden(const Mesh& mesh) {
  const Array x = device_put(ones({8, 8}), NamedSharding(mesh, P{"data", "model"}));
  const Array w = device_put(ones({8, 4}), NamedSharding(mesh, P{none, "model"}));
  const auto guard = forbid_implicit_communication();
  matmul(x, w);  // wrong
}

void requested(const Mesh& mesh) {
  const Array x = device_put(ones({8, 8}), NamedSharding(mesh, P{"data", "model"}));
  const Array w = device_put(ones({8, 4}), NamedSharding(mesh, P{none, "model"}));
  const auto guard = forbid_implicit_communication();
  matmul(with_sharding_constraint(x, P{"data", none}), w);  // right
}

// Both run on one process: only several processes can disagree.
void inconsistent(const Mesh&) {
  auto model = nn::Linear::init(Key(std::random_device()()), {"embed", 6}, {"hidden", 4});  // wrong: differs by process
}

void consistent(const Mesh&) {
  auto model = nn::Linear::init(Key(0), {"embed", 6}, {"hidden", 4});  // right
}

void other(const Mesh&) {
  const auto read = [](int64_t i) { return i < 6 ? i : throw std::runtime_error("no such row"); };
  data::Loader(data::range(8).map(read), data::stack, {.batch_size = 8}).next();  // wrong
}

void readable_rows(const Mesh&) {
  const auto read = [](int64_t i) { return i < 6 ? i : throw std::runtime_error("no such row"); };
  data::Loader(data::range(6).map(read), data::stack, {.batch_size = 6}).next();  // right
}

// Rows of different sizes; the last row is 0.
Array rows_on(const Mesh& mesh) {
  return device_put(reshape(7 - arange(8), {8, 1}) * ones({1, 4}), NamedSharding(mesh, P{"data"}));
}

// Normalizes rows to length 1.
void not_finite(const Mesh& mesh) {
  const Array rows = rows_on(mesh);
  const auto normalized = [](const Array& x) { return sum(x / sqrt(sum(x * x, {1}, true))); };  // wrong
  const DetectNonFinite check;
  const StepScope step(12);
  nn::value_and_grad(normalized)(rows);
}

void finite_norms(const Mesh& mesh) {
  const Array rows = rows_on(mesh);
  const auto normalized = [](const Array& x) { return sum(x / sqrt(sum(x * x, {1}, true) + 1e-6)); };  // right
  const DetectNonFinite check;
  nn::value_and_grad(normalized)(rows);
}

void not_finite_backward(const Mesh&) {
  const DetectNonFinite check;
  nn::value_and_grad([](const Array& x) { return sum(sqrt(x)); })(arange(0.0, 4.0));
}

void not_finite_parameter(const Mesh& mesh) {
  nn::Linear model = linear;
  model.kernel.value = model.kernel.value / 0;
  model = nn::filter_shard(model, MeshRules{mesh, {{"embed", replicated}, {"hidden", "model"}}});
  const DetectNonFinite check;
  model(ones({2, 6}));
}

struct Deep {
  std::vector<nn::Mlp> layers;

  static Deep init() {
    Deep model;
    for (const Key& key : split(Key(0), 4)) model.layers.push_back(nn::Mlp::init(key, {"embed", 32}, {"hidden", 128}));
    return model;
  }
};

Array deep_loss(const Deep& model, const Array& x) {
  Array h = x;
  for (const nn::Mlp& layer : model.layers) h = h + layer(h);
  return mean(square(h));
}

// Calls f with a model and a batch, while there is memory for 2 MB more.
template <class F>
void with_little_memory(const Mesh& mesh, F f) {
  tessera::testing::LimitedMemory memory;
  const MeshRules mesh_rules{mesh, {{"batch", "data"}, {"embed", replicated}, {"hidden", replicated}}};
  const Deep model = nn::filter_shard(Deep::init(), mesh_rules);
  const Array x = device_put(normal(Key(1), {1024, 32}), {"batch", none}, mesh_rules);
  memory.limit(tessera::testing::LimitedMemory::live + 2'000'000);
  f(model, x);
}

void out_of_memory(const Mesh& mesh) {
  with_little_memory(mesh, [](const Deep& model, const Array& x) {
    const auto [loss, grads] = nn::value_and_grad(deep_loss)(model, x);  // wrong
  });
}

void micro_batches(const Mesh& mesh) {
  with_little_memory(mesh, [](const Deep& model, const Array& x) {
    const auto [loss, grads] = nn::accumulate_gradients(deep_loss, 8)(model, x);  // right
  });
}

void show(const char* kind, const std::function<void(const Mesh&)>& mistake, const Mesh& mesh) {
  try {
    mistake(mesh);
    std::cout << kind << ": no error\n";
    std::exit(1);
  } catch (const Error& error) {
    const std::string message = error.what();  // the memory of the process differs between runs
    std::cout << kind << ": " << std::regex_replace(message, std::regex("hold [0-9,]+ bytes"), "hold N bytes") << '\n';
  }
}

void run(const char* kind, const std::function<void(const Mesh&)>& right, const Mesh& mesh) {
  try {
    right(mesh);
  } catch (const std::exception& error) {
    std::cout << kind << ": the right program throws " << error.what() << '\n';
    std::exit(1);
  }
}

void show(const char* kind, const std::function<void(const Mesh&)>& mistake,
          const std::function<void(const Mesh&)>& right, const Mesh& mesh) {
  run(kind, right, mesh);
  show(kind, mistake, mesh);
}

// ---- custom functions

struct DiskFull : std::runtime_error {
  DiskFull() : std::runtime_error("the disk is full") {}
};

void show_own(const char* name, const std::function<void()>& call) {
  try {
    call();
  } catch (const DiskFull& thrown) {
    std::cout << name << ": DiskFull, " << thrown.what();
  } catch (const Error& error) {
    std::cout << name << ": Error, " << error.what();
  }
}

struct Net {
  nn::BatchNorm norm;
  nn::Linear linear;
  Array operator()(const Array& x) { return linear(norm(x)); }
};

void own_loss() {
  Net model{nn::BatchNorm::init({"embed", 6}), linear};
  const Net before = model;
  const Array x = normal(Key(1), {8, 6});
  const auto loss = [](Net& net, const Array& x) -> Array {
    net(x);  // updates the copy's running statistics
    throw DiskFull();
  };
  show_own("value_and_grad", [&] { nn::value_and_grad(loss)(model, x); });
  std::cout << (nn::tree_equal(model, before) ? "; the model is what it was\n" : "; the model has changed\n");
}

void own_schedule() {
  Model model{ones({8})};
  const auto rate = [](int64_t count) { return count == 0 ? 0.1 : throw DiskFull(); };
  optim::Optimizer optimizer(model, optim::adam({.learning_rate = rate}));
  show_own("Optimizer.update", [&] {
    for (;;) optimizer.update(model, {ones({8})});
  });
  std::cout << "; after " << optimizer.count() << " update\n";
}

void own_record() {
  const auto records = data::range(100).map([](int64_t i) { return i == 17 ? throw DiskFull() : i; });
  data::Loader loader(records, data::stack, {.batch_size = 10});
  show_own("Loader::next", [&] {
    while (loader.next()) continue;
  });
  std::cout << "; before record " << loader.state().global_next_index << '\n';
}

int main() {
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
  show("not_divisible", not_divisible, divisible, mesh);
  show("unknown_axis", unknown_logical_axis, declared_axis, mesh);
  show("unknown_axis", unknown_mesh_axis, mesh);
  show("unknown_axis", collective_outside, mesh);
  show("duplicate_axis", duplicate_axis, two_axes, mesh);
  show("rank_mismatch", rank_mismatch, same_rank, mesh);
  show("rank_mismatch", too_many_names, mesh);
  show("unconstrained", unconstrained_dim, constrained_dim, mesh);
  show("shape_mismatch", shape_mismatch, same_shape, mesh);
  show("shape_mismatch", layer_input, mesh);
  show("shape_mismatch", loss_of_many, mesh);
  show("dtype_mismatch", dtype_mismatch, integer_labels, mesh);
  show("dtype_mismatch", read_as_another, mesh);
  show("device_mismatch", device_mismatch, same_mesh, mesh);
  show("device_mismatch", gradient_elsewhere, mesh);
  show("missing_array", missing_array, combined, mesh);
  show("no_gradient", no_gradient, gradient, mesh);
  show("invalid_file", invalid_file, existing_file, mesh);
  show("invalid_file", not_utf8, mesh);
  show("invalid_argument", invalid_argument, valid_argument, mesh);
  show("invalid_argument", no_gradients, mesh);
  show("invalid_argument", empty_schedule, mesh);
  show("invalid_argument", moved, mesh);
  show("varying_axis", varying_axis, invarying_axis, mesh);
  show("size_mismatch", size_mismatch, tiled, mesh);
  show("duplicate_pair", duplicate_pair, distinct_pairs, mesh);
  show("forbidden", forbidden, requested, mesh);
  run("inconsistent", inconsistent, mesh);
  run("inconsistent", consistent, mesh);
  show("out_of_memory", out_of_memory, micro_batches, mesh);
  show("other", other, readable_rows, mesh);
  show("not_finite", not_finite, finite_norms, mesh);
  show("not_finite", not_finite_backward, mesh);
  show("not_finite", not_finite_parameter, mesh);
  own_loss();
  own_schedule();
  own_record();
}
