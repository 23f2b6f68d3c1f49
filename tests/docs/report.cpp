// A report of two layers: placement, one step, and one page (docs/report.md).
#include <fstream>
#include <iostream>

#include <tessera/nn/layers/mlp.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/report.h>
#include <tessera/nn/transformations.h>
#include <tessera/nn/tree.h>
#include <tessera/optim/optimizer.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/placement.h>
#include <tessera/sharding/random.h>

using namespace tessera;

Array mean_square(const nn::Mlp& model, const Array& x) { return mean(square(model(x))); }

int main() {
  const MeshRules mesh_rules{make_mesh({{"data", 4}, {"model", 2}}),
                             {{"batch", "data"}, {"hidden", "model"}, {"embed", replicated}}};
  auto model = nn::filter_shard(nn::Mlp::init(Key(0), {"embed", 512}, {"hidden", 2048}), mesh_rules);
  const Array x = device_put(normal(Key(1), {64, 512}), {"batch", "embed"}, mesh_rules);

  const nn::ActivationTable trace = nn::activation_summary(mean_square, model, x);
  std::cout << trace;
  const Array hidden = nn::capture(model, "up", x).at("up")[0];
  std::cout << "hidden: " << hidden.type_string() << '\n';

  auto optimizer = optim::Optimizer(model, optim::sgd({.learning_rate = 0.01}));
  const double flops_of_a_step = nn::flops_per_device(nn::value_and_grad(mean_square), model, x);

  nn::Profile profile({.flops = flops_of_a_step, .peak_flops_per_second = 50e9});
  for (int i = 0; i < 5; ++i) {
    const auto [loss, grads] = nn::value_and_grad(mean_square)(model, x);
    optimizer.update(model, grads);
    profile.step();
  }
  const nn::ProfileReport times = profile.gather();
  std::cout << times;
  std::ofstream("trace.json") << times.chrome_trace();

  CommLedger ledger;
  nn::value_and_grad(mean_square)(model, x);

  nn::Report report{.title = "Two layers", .facts = {{"mesh", mesh_rules.mesh().to_string()}}};
  report.placement = nn::placement_table(model);
  report.collectives = ledger.records();
  report.activations = trace;
  report.charts = {{.title = "Loss", .x = "step", .y = "nats", .series = {{"training loss", {{1, 2.5}, {2, 2.25}}}}}};
  std::ofstream("report.html") << report.to_html();
  std::cout << "report.html: " << report.collectives.size() << " collectives, " << ledger.bytes() << " bytes\n";
}
