// Measures time and memory of the placement table of a 70B decoder and its optimizer on 512 devices.
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <iostream>

#include "examples/transformer.h"
#include "nn/placement/explain.h"
#include "nn/placement/table.h"
#include "optim/optimizer.h"

int main() {
  using namespace tessera;
  const auto start = std::chrono::steady_clock::now();
  const MeshRules mesh_rules(
      make_mesh({{"batch", 64}, {"model", 8}}, {.abstract = true}),
      examples::with_all_names(
          {{"heads", "model"}, {"kv_heads", "model"}, {"mlp", "model"}, {"vocab", "model"}, {"embed", "batch"}}));
  const auto model = nn::CausalLM::init(Key(0), examples::llama_70b());
  const optim::Optimizer optimizer(model, optim::adamw({.learning_rate = 3e-4}));
  const nn::Leaves both = nn::named("model", model, "optimizer", optimizer);
  const nn::PlacementTable table = nn::placement_table(both, mesh_rules);
  std::cout << table.to_text({.width = 100, .fold = true}) << '\n'
            << table.to_text({.depth = 1}) << '\n'
            << nn::explain(model, mesh_rules);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("\n%zu rows in %.3f s, %.0f MB\n", table.rows().size(), taken.count(),
              static_cast<double>(usage.ru_maxrss) / 1024);
}
