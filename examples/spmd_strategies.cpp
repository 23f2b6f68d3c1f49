// One model, four strategies: the bytes of each device, the communication of a step, and the same loss.
//
// A C++ version of the document "SPMD: automatic sharding". There, a compiler inserts the communication into a jitted
// step. Here each operation communicates, and a ledger records it.
#include <cstdio>
#include <functional>
#include <iomanip>
#include <iostream>

#include <tessera/nn/layers/linear.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/transformations.h>
#include <tessera/optim/optimizer.h>
#include <tessera/sharding/accounting.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/placement.h>
#include <tessera/sharding/random.h>

using namespace tessera;

// ---- A mesh is a named grid of devices; a spec assigns mesh axes to dims

void show(const char* what, const Array& x) {
  std::cout << std::left << std::setw(28) << what << ' ' << std::setw(29) << x.type_string() << " each device holds "
            << std::setw(12) << to_string(x.addressable_shards()[0].data.shape()) << ' ' << std::right << std::setw(8)
            << x.shard_bytes() << " bytes\n";
}

void specs() {
  const Mesh tall = make_mesh({{"data", 8}, {"model", 1}}), both = make_mesh({{"data", 4}, {"model", 2}});
  const Array x = normal(Key(0), {128, 512});
  show("P('data', None) on 8 x 1", device_put(x, NamedSharding(tall, P{"data", none})));
  show("P(None, 'data') on 8 x 1", device_put(x, NamedSharding(tall, P{none, "data"})));
  show("P('data', 'model') on 4 x 2", device_put(x, NamedSharding(both, P{"data", "model"})));
  show("P() on 4 x 2", device_put(x, NamedSharding(both, P{})));
  const Array query = normal(Key(0), {512, 512});
  show("a query's, P(None, 'model')", device_put(query, NamedSharding(make_mesh({{"model", 8}}), P{none, "model"})));
}

// ---- Sharding propagation: the operands' shardings determine the result's

void propagation() {
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
  const Array w = device_put(normal(Key(1), {32, 64}), NamedSharding(mesh, P{none, "model"}));
  for (const PartitionSpec& spec : {P{"data", none}, P{"data", "model"}}) {
    const Array x = device_put(normal(Key(2), {16, 32}), NamedSharding(mesh, spec));
    const CommLedger ledger;
    const Array y = matmul(x, w);
    std::cout << x.type_string() << " @ " << w.type_string() << " = " << y.type_string() << '\n' << ledger.to_text();
  }
  const Array x = device_put(normal(Key(2), {16, 8}), NamedSharding(mesh, P{"data"}));
  std::cout << "constrained: " << with_sharding_constraint(x, P{"model"}).type_string() << '\n';
}

// ---- Four strategies

struct Mlp {
  nn::Linear up, down;

  static Mlp init(Key key, Axis embed, Axis hidden) {
    auto [k1, k2] = split<2>(key);
    return {.up = nn::Linear::init(k1, embed, hidden), .down = nn::Linear::init(k2, hidden, embed)};
  }
  Array operator()(const Array& x) const { return down(gelu(up(x))); }
};

Array mse(const Mlp& model, const Array& x, const Array& y) { return mean(square(model(x) - y)); }

struct Strategy {
  const char* name;
  Mesh mesh;
  PartitionSpec batch;
  std::function<PartitionSpec(const std::string& path, const Array& x)> parameter;
};

bool is_kernel(const std::string& path) { return path.ends_with("kernel"); }

std::vector<Strategy> strategies() {
  return {{"data parallel", make_mesh({{"data", 8}}), P{"data"}, [](const auto&, const auto&) { return P{}; }},
          {"tensor parallel", make_mesh({{"model", 8}}), P{},
           [](const auto& path, const auto&) {
             return is_kernel(path) ? P{none, "model"} : P{};
           }},
          {"2D parallel", make_mesh({{"data", 4}, {"model", 2}}), P{"data"},
           [](const auto& path, const auto&) {
             return is_kernel(path) ? P{none, "model"} : P{};
           }},
          {"fully sharded", make_mesh({{"fsdp", 8}}), P{"fsdp"},
           [](const auto&, const Array& x) { return x.size() > 1024 ? P{"fsdp"} : P{}; }}};
}

void train(const Strategy& s) {
  const auto place = [&](const std::string& path, const Array& x) {
    return NamedSharding(s.mesh, s.parameter(path, x));
  };
  auto model = nn::filter_shard(Mlp::init(Key(0), {"embed", 512}, {"hidden", 2048}), place);
  auto optimizer = optim::Optimizer(model, optim::adam({.learning_rate = 1e-3}));
  const Array x = device_put(normal(Key(1), {64, 512}), NamedSharding(s.mesh, s.batch));
  const Array y = device_put(normal(Key(2), {64, 512}), NamedSharding(s.mesh, s.batch));
  int64_t held = 0, whole = 0;
  for (const nn::Leaf& leaf : nn::leaves(model)) held += leaf.value->shard_bytes(), whole += leaf.value->nbytes();
  std::cout << '\n' << s.name << ": " << held << " of " << whole << " bytes of parameters on each device\n";
  for (int step = 0; step < 3; ++step) {
    const CommLedger ledger;
    const auto [loss, grads] = nn::value_and_grad(mse)(model, x, y);
    optimizer.update(model, grads);
    std::printf("loss %.6f\n", loss.item<float>());
    if (step == 0) std::cout << ledger.to_text();
  }
}

// ---- The memory that full sharding saves, computed before anything is placed

void memory() {
  const Mesh mesh = make_mesh({{"fsdp", 8}});
  const Shape shape{10000, 10000};  // a model of 400 MB
  for (const PartitionSpec& spec : {P{}, P{"fsdp"}}) {
    const int64_t mb = NamedSharding(mesh, spec).shard_bytes(shape, float32) / 1000000;
    std::cout << spec.to_string() << ": " << mb << " MB on each device, " << 8 * mb << " MB in all\n";
  }
}

int main() {
  specs();
  propagation();
  memory();
  for (const Strategy& s : strategies()) train(s);
}
