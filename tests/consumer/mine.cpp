// The first model of docs/start.md: a small network that tells two spirals apart, on eight devices.
#include <cmath>
#include <iostream>
#include <numbers>
#include <vector>

#include <tessera/data/batches.h>
#include <tessera/data/datasets.h>
#include <tessera/data/loader.h>
#include <tessera/nn/layers/linear.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/transformations.h>
#include <tessera/optim/optimizer.h>
#include <tessera/sharding/accounting.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/random.h>

using namespace tessera;

// ---- The model: a struct whose fields are its parts ----------------------------------------------------------------

struct Classifier {
  nn::Linear in, up, out;

  static Classifier init(Key key, Axis point, Axis embed, Axis hidden, Axis arm) {
    const auto [k1, k2, k3] = split<3>(key);
    return {.in = nn::Linear::init(k1, point, embed),
            .up = nn::Linear::init(k2, embed, hidden),
            .out = nn::Linear::init(k3, hidden, arm)};
  }
  Array operator()(const Array& x) const { return out(tanh(up(tanh(in(x))))); }
};

// ---- The data: points on two arms, in batches whose dims have names ------------------------------------------------

struct Point {
  std::vector<float> position;
  int32_t arm;
};

struct Batch {
  NamedArray position{"batch", "point"};
  NamedArray arm{"batch"};
};

Point point_of(int64_t i) {
  const double along = std::sqrt(static_cast<double>(i / 2) / 500), angle = 3 * std::numbers::pi * along;
  const double side = i % 2 == 0 ? 1 : -1;
  return {{static_cast<float>(side * along * std::cos(angle)), static_cast<float>(side * along * std::sin(angle))},
          static_cast<int32_t>(i % 2)};
}

// ---- The loss, and the fraction of correct answers -----------------------------------------------------------------

std::pair<Array, Array> loss_of(const Classifier& model, const Batch& batch) {
  const Array logits = model(batch.position);
  return {cross_entropy(logits, batch.arm), mean(equal(argmax(logits, -1), batch.arm))};
}

int main() {
  const MeshRules mesh_rules{
      make_mesh({{"data", 4}, {"model", 2}}),
      {{"batch", "data"}, {"hidden", "model"}, {"point", replicated}, {"embed", replicated}, {"arm", replicated}}};

  auto model =
      nn::filter_shard(Classifier::init(Key(0), {"point", 2}, {"embed", 32}, {"hidden", 64}, {"arm", 2}), mesh_rules);
  auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = 0.01}));
  std::cout << nn::placement_table(model) << '\n';

  const auto points = data::range(1000).map(point_of).shuffle(0).repeat();
  auto loader = data::shard_batches(data::Loader(points, data::stack_as<Batch>, {.batch_size = 200}), mesh_rules);
  for (int step = 1; step <= 300; ++step) {
    const auto [result, grads] = nn::value_and_grad(loss_of)(model, *loader.next());
    optimizer.update(model, grads);
    const auto& [loss, right] = result;
    if (step % 100 == 0)
      std::cout << "step " << step << "  loss " << loss.item<float>() << "  right " << right.item<float>() << '\n';
  }

  const CommLedger ledger;
  nn::value_and_grad(loss_of)(model, *loader.next());
  std::cout << '\n' << ledger.to_text_by_line();
}
