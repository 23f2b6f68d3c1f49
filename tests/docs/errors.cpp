// The mistakes of docs/errors.md: each kind, made on purpose, and what is said; what functions of one's own throw.
#include <cstdlib>
#include <functional>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <tessera/data/batches.h>
#include <tessera/data/loader.h>
#include <tessera/data/sources.h>
#include <tessera/nn/checkpoint.h>
#include <tessera/nn/layers/batch_norm.h>
#include <tessera/nn/layers/dropout.h>
#include <tessera/nn/layers/linear.h>
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

using namespace tessera;

Array sum_of(const nn::Linear& model, const Array& x) { return sum(model(x)); }

const nn::Linear linear = nn::Linear::init(Key(0), {"embed", 6}, {"hidden", 4});

void divided(const Mesh& m) {
  (void)nn::filter_shard(linear, MeshRules{m, {{"embed", "data"}, {"hidden", replicated}}});
}

void unknown_logical_axis(const Mesh& mesh) {
  (void)nn::filter_shard(linear, MeshRules{mesh, {{"embed", replicated}}});
}

void unknown_mesh_axis(const Mesh& mesh) { NamedSharding(mesh, P{"modle"}); }

void collective_outside(const Mesh&) { psum(ones({8}), "data"); }

void duplicate_axis(const Mesh& mesh) { NamedSharding(mesh, P{"data", "data"}); }

void rank_mismatch(const Mesh& mesh) { device_put(ones({8}), NamedSharding(mesh, P{"data", "model"})); }

struct Named {
  nn::Param w;
};

void too_many_names(const Mesh& m) {
  (void)nn::filter_shard(Named{{ones({8}), {"embed", "hidden"}}}, MeshRules{m, {}});
}

void unconstrained_dim(const Mesh& mesh) { device_put(ones({8, 8}), NamedSharding(mesh, P{"data", unconstrained})); }

void shape_mismatch(const Mesh&) { matmul(ones({8, 6}), ones({4, 8})); }

void layer_input(const Mesh&) { linear(ones({2, 5})); }

void loss_of_many(const Mesh&) {
  nn::value_and_grad([](const nn::Linear& model, const Array& x) { return model(x); })(linear, ones({2, 6}));
}

void dtype_mismatch(const Mesh&) { cross_entropy(ones({8, 4}), ones({8})); }

void read_as_another(const Mesh&) { ones({8}).to_host<int32_t>(); }

void device_mismatch(const Mesh& mesh) {
  const Mesh other = make_mesh({{"data", 4}});
  device_put(ones({8}), NamedSharding(mesh, P{"data"})) + device_put(ones({8}), NamedSharding(other, P{"data"}));
}

using Model = std::vector<Array>;

void gradient_elsewhere(const Mesh& mesh) {
  Model model{device_put(ones({8}), NamedSharding(make_mesh({{"data", 4}}), P{"data"}))};
  optim::Optimizer(model, optim::sgd({.learning_rate = 0.1}))
      .update(model, {device_put(ones({8}), NamedSharding(mesh, P{"data"}))});
}

void missing_array(const Mesh&) {
  const auto [kernel, rest] = nn::partition(linear, nn::by_path("kernel"));
  kernel(ones({2, 6}));
}

void no_gradient(const Mesh&) {
  nn::value_and_grad([](const nn::Linear&, const Array& x) { return sum(x); })(linear, ones({2, 6}));
}

void invalid_file(const Mesh&) {
  nn::Linear model = linear;
  nn::restore("runs/none", nn::named_state("model", model));
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

void invalid_argument(const Mesh&) { nn::Dropout{.rate = 1.5}(ones({2}), Key(0)); }

void varying_axis(const Mesh& mesh) {
  shard_map([](const Array& block) { return sum(block); }, mesh, P{"data"}, P{})(ones({8}));
}

void size_mismatch(const Mesh& mesh) {
  shard_map([](const Array& block) { return all_to_all(block, "data", 0, 1); }, mesh, P{"data"},
            P{none, "data"})(ones({24, 8}));
}

void duplicate_pair(const Mesh& mesh) {
  shard_map(
      [](const Array& block) {
        return ppermute(block, "data", {{0, 1}, {2, 1}});
      },
      mesh, P{"data"}, P{"data"})(ones({8}));
}

void forbidden(const Mesh& mesh) {
  const auto guard = forbid_implicit_communication();
  const Array x = device_put(ones({8, 8}), NamedSharding(mesh, P{"data", "model"}));
  matmul(x, device_put(ones({8, 4}), NamedSharding(mesh, P{none, "model"})));
}

// Rows of different sizes, brought to length 1; the last one is 0.
void not_finite(const Mesh& mesh) {
  const Array rows = device_put(reshape(7 - arange(8), {8, 1}) * ones({1, 4}), NamedSharding(mesh, P{"data"}));
  const auto normalized = [](const Array& x) { return sum(x / sqrt(sum(x * x, {1}, true))); };
  const DetectNonFinite check;
  const StepScope step(12);
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

void show(const char* kind, const std::function<void(const Mesh&)>& mistake, const Mesh& mesh) {
  try {
    mistake(mesh);
    std::cout << kind << ": no error\n";
    std::exit(1);
  } catch (const Error& error) {
    std::cout << kind << ": " << error.what() << '\n';
  }
}

// ---- functions of one's own

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
    net(x);  // moves the copy's running statistics
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
  show("not_divisible", divided, mesh);
  show("unknown_axis", unknown_logical_axis, mesh);
  show("unknown_axis", unknown_mesh_axis, mesh);
  show("unknown_axis", collective_outside, mesh);
  show("duplicate_axis", duplicate_axis, mesh);
  show("rank_mismatch", rank_mismatch, mesh);
  show("rank_mismatch", too_many_names, mesh);
  show("unconstrained", unconstrained_dim, mesh);
  show("shape_mismatch", shape_mismatch, mesh);
  show("shape_mismatch", layer_input, mesh);
  show("shape_mismatch", loss_of_many, mesh);
  show("dtype_mismatch", dtype_mismatch, mesh);
  show("dtype_mismatch", read_as_another, mesh);
  show("device_mismatch", device_mismatch, mesh);
  show("device_mismatch", gradient_elsewhere, mesh);
  show("missing_array", missing_array, mesh);
  show("no_gradient", no_gradient, mesh);
  show("invalid_file", invalid_file, mesh);
  show("invalid_file", not_utf8, mesh);
  show("invalid_argument", invalid_argument, mesh);
  show("invalid_argument", no_gradients, mesh);
  show("invalid_argument", empty_schedule, mesh);
  show("invalid_argument", moved, mesh);
  show("varying_axis", varying_axis, mesh);
  show("size_mismatch", size_mismatch, mesh);
  show("duplicate_pair", duplicate_pair, mesh);
  show("forbidden", forbidden, mesh);
  show("not_finite", not_finite, mesh);
  show("not_finite", not_finite_backward, mesh);
  show("not_finite", not_finite_parameter, mesh);
  own_loss();
  own_schedule();
  own_record();
}
