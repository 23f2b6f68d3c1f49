// Prints the communication of a training step by line of the program, with reasons; docs/conflicts.md shows the output.
#include <iostream>

#include <tessera/nn/layers/linear.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/transformations.h>
#include <tessera/sharding/accounting.h>
#include <tessera/sharding/array.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/placement.h>
#include <tessera/sharding/random.h>

using namespace tessera;

struct Mlp {
  nn::Linear up, down;

  Array operator()(const Array& x) const {
    const Array hidden = gelu(up(x));
    return down(hidden);
  }
};

Array loss_of(const Mlp& model, const Array& x) { return mean(square(model(x) - x)); }

int main() {
  // Rows and weights are sharded over "data", the hidden dim over "model": fully sharded and tensor parallel.
  const MeshRules mesh_rules{make_mesh({{"data", 4}, {"model", 2}}),
                             {{"batch", "data"}, {"embed", "data"}, {"hidden", "model"}}};
  const auto [k1, k2, k3] = split<3>(Key(0));
  const Axis embed{"embed", 64}, hidden{"hidden", 128};
  const auto model = nn::filter_shard(
      Mlp{.up = nn::Linear::init(k1, embed, hidden), .down = nn::Linear::init(k2, hidden, embed)}, mesh_rules);
  const Array x = device_put(normal(k3, {32, 64}), NamedSharding(mesh_rules.mesh(), P{"data"}));
  std::cout << visualize_sharding(model.up.kernel, {.color = VisualizeOptions::Color::never});

  CommLedger ledger;
  const auto [loss, grads] = nn::value_and_grad(loss_of)(model, x);
  std::cout << '\n' << ledger.to_text_by_mesh_axis() << '\n' << ledger.to_text_by_line() << '\n';
  for (const CommRecord& r : ledger.records())
    if (r.path == "up.kernel")
      std::cout << r.kind << " of " << r.path << ", line " << r.where.line() << ", from " << r.operand << " to "
                << r.result << "\n  " << r.reason << '\n';

  try {
    const auto guard = forbid_implicit_communication();
    model(x);
  } catch (const Error& error) {
    std::cout << '\n' << error.what() << '\n';
  }
}
