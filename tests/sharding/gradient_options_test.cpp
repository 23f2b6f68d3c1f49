// GradientOptions: gradients that stay pending sums, and the element type in which they are reduced.
#include "allocations.h"
#include "step.h"

namespace tessera {
namespace {

using namespace tessera::testing;
using Arrays = const std::vector<Array>&;

// A product, a decayed weight, a bias used twice, and one that is not used.
Array loss_of(const Array& x, Arrays w) {
  return mean(square(tanh(matmul(x, w[0]) + w[1]) * w[1])) + 0.1 * sum(square(w[0]));
}

TEST(PendingGradients, AreTheGradientsOnceTheyAreSummed) {
  int cases = 0;
  for (const std::vector<MeshAxis>& axes : {std::vector<MeshAxis>{{"a", 2}, {"b", 2}}, {{"a", 3}, {"b", 2}}})
    for (const bool private_replicas : {false, true}) {
      const Mesh mesh = make_mesh(axes, {.private_replicas = private_replicas});
      for (const PartitionSpec& data : placements(mesh, {12, 6}))
        for (const PartitionSpec& weight : placements(mesh, {6, 6})) {
          if (!data.unreduced_axes().empty() || !weight.unreduced_axes().empty()) continue;
          SCOPED_TRACE(data.to_string() + " " + weight.to_string() + (private_replicas ? ", private" : ", shared"));
          const Array x = placed(random_tensor({12, 6}, 1), mesh, data);
          const std::vector<Array> w{placed(random_tensor({6, 6}, 2), mesh, weight),
                                     placed(random_tensor({6}, 3), mesh, P{weight.entries().back()}),
                                     placed(random_tensor({6}, 4), mesh, {}), from_tensor(random_tensor({6, 6}, 5))};
          const auto model = [&](Arrays p) { return loss_of(x, p) + sum(matmul(x, p[3])); };
          const Step reduced = step(w, model), pending = step(w, model, {.reduce = false});
          EXPECT_LE(difference(pending, reduced), 1e-14);
          for (size_t i = 0; i < 3; ++i) {
            const NamedSharding home = reduced.gradients[i].sharding();
            const PartitionSpec spec = pending.gradients[i].sharding().spec();
            EXPECT_EQ(without_sets(spec), without_sets(home.spec())) << i;
            const Array moved = redistribute(pending.gradients[i], home);
            EXPECT_LE(difference(to_tensor(moved), to_tensor(reduced.gradients[i])), 1e-14) << i;
          }
          EXPECT_EQ(pending.gradients[2].type_string(), "float64[6]");
          ++cases;
        }
    }
  std::cout << cases << " cases\n";
}

TEST(PendingGradients, CommunicateNothing) {
  for (const bool private_replicas : {false, true}) {
    const Mesh mesh = make_mesh({{"data", 4}}, {.private_replicas = private_replicas});
    const Array x = placed(random_tensor({8, 8}, 1), mesh, P{"data"});
    const std::vector<Array> w{placed(random_tensor({8, 8}, 2), mesh, {}), placed(random_tensor({8}, 3), mesh, {})};
    const Step got = step(w, [&](Arrays p) { return loss_of(x, p); }, {.reduce = false});
    EXPECT_EQ(got.communication, "all_reduce data 8");
    for (const Array& g : got.gradients) EXPECT_EQ(g.sharding().spec(), P{}.unreduced({"data"}));
  }
}

// Devices that share replicas have added their contributions up already.
TEST(PendingGradients, TakeTheMemoryOfOneWhereReplicasAreShared) {
  constexpr int64_t n = 128, bytes = n * n * 8;
  const Mesh mesh = make_mesh({{"data", 8}});
  const Array x = placed(random_tensor({8, n}, 1), mesh, P{"data"});
  const std::vector<Array> w{placed(random_tensor({n, n}, 2), mesh, {})};
  const Allocations memory;
  const Step got = step(w, [&](Arrays p) { return mean(matmul(x, p[0])); }, {.reduce = false});
  EXPECT_LE(memory.live(), bytes + bytes / 4);
  EXPECT_EQ(got.gradients[0].type_string(), "float64[128,128]{U:data}");
}

TEST(Reduction, IsInTheChosenType) {
  for (const bool private_replicas : {false, true}) {
    const Mesh mesh = make_mesh({{"data", 4}}, {.private_replicas = private_replicas});
    const Array x = placed(random_tensor({8, 8}, 1), mesh, P{"data"});
    const std::vector<Array> w{placed(random_tensor({8, 8}, 2), mesh, {}), placed(random_tensor({8}, 3), mesh, {})};
    const auto model = [&](Arrays p) { return loss_of(x, p); };
    const Step exact = step(w, model), rounded = step(w, model, {.reduction = float32});
    EXPECT_EQ(exact.communication, "<all_reduce data 576; all_reduce data 8");
    EXPECT_EQ(rounded.communication, "<all_reduce data 288; all_reduce data 8");
    for (size_t i = 0; i < w.size(); ++i)
      EXPECT_EQ(rounded.gradients[i].type_string(), exact.gradients[i].type_string());
    EXPECT_LE(difference(rounded, exact), 1e-6);
    EXPECT_GT(difference(rounded, exact), 0);
  }
}

}  // namespace
}  // namespace tessera
