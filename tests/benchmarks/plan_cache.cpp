// Measures the plan cache: a hit, a miss, and misses that evict other plans.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cstdio>

#include "sharding/operations.h"
#include "sharding/propagation/run.h"
#include "sharding/redistribution/device_put.h"
#include "tests/benchmarks/timing.h"

namespace {

using namespace tessera;
using benchmarks::microseconds, benchmarks::Times;

template <class F>
void report(const char* what, int rounds, int calls, F f) {
  const Times t = benchmarks::time(rounds, calls, f);
  std::printf("%-44s %9.3f us   median %.3f\n", what, t.least, t.median);
}

Array on(const Mesh& mesh, const PartitionSpec& spec, Shape shape) {
  return device_put(from_tensor(at::randn(shape)), NamedSharding(mesh, spec));
}

void hits_and_misses(const char* name, const Mesh& mesh, const PartitionSpec& left, const PartitionSpec& right) {
  const Array a = on(mesh, left, {8, 8}), b = on(mesh, right, {8, 8});
  std::printf("%s\n", name);
  report("  matmul, plan known", 1001, 50, [&](int) { matmul(a, b); });
  report("  matmul, plan made", 2001, 1, [&](int) {
    tessera::detail::clear_plans();
    matmul(a, b);
  });
}

}  // namespace

int main() {
  at::AutoGradMode off(false);
  hits_and_misses("mesh of one", make_mesh({{"data", 1}}), P{}, P{});
  hits_and_misses("data=4, model=2, operands agree", make_mesh({{"data", 4}, {"model", 2}}), P{"data"},
                  P{none, "model"});

  // Every stop value has its own plan: twice as many as the cache holds.
  tessera::detail::clear_plans();
  const auto most = static_cast<int>(tessera::detail::max_plans);
  const Array x = on(make_mesh({{"data", 1}}), P{}, {2 * most});
  const auto cut = [&](int stop) { slice_in_dim(x, 0, stop + 1, 0); };
  std::printf("%d plans at most\n", most);
  std::printf("%-44s %9.3f us\n", "  new plans into a cache that is not full", microseconds(most / 2, cut));
  std::printf("%-44s %9.3f us\n", "  new plans into a full cache",
              microseconds(most / 2, [&](int i) { cut(most + i); }));
  std::printf("%-44s %9zu\n", "  plans held at the end", tessera::detail::plan_count());
  return tessera::detail::plan_count() <= tessera::detail::max_plans ? 0 : 1;
}
