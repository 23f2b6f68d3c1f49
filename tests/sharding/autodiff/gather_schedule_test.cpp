// Gathers of weights and reduce_scatters of their gradients, block by block, in the order of the previous step.
#include <algorithm>

#include "sharding/accounting/communication_guard.h"
#include "sharding/autodiff/remat.h"
#include "sharding/autodiff/weights/prefetch_schedule.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/step.h"

namespace tessera::gather_schedule_test {
namespace {

using namespace tessera::testing;
using Arrays = const std::vector<Array>&;
using Paths = std::vector<std::string>;

constexpr int64_t width = 8, rows = 16, bytes = width * width * 8;
const Paths two_layers{"embed", "layers.0.up", "layers.0.down", "layers.1.up", "layers.1.down", "head"};

std::vector<Array> weights_of(Mesh mesh, const Paths& paths = two_layers) {
  std::vector<Array> weights;
  for (const std::string& path : paths) {
    weights.push_back(placed(random_tensor({width, width}, weights.size() + 1) * 0.3, mesh, P{"data"}));
    weights.back().impl()->detail().path = detail::as_text(path);
  }
  return weights;
}

struct Net {
  Array x;
  bool remat = false;
  int skipped = -1;  // the layer to skip
  Array operator()(Arrays w) const {
    Array y = tanh(matmul(x, w[0]));
    for (int i = 0; i < 2; ++i) {
      if (i == skipped) continue;
      const std::vector<Array> in{y, w[1 + 2 * i], w[2 + 2 * i]};
      const auto layer = [](Arrays a) -> std::vector<Array> { return {a[0] + matmul(tanh(matmul(a[0], a[1])), a[2])}; };
      y = remat ? tessera::remat(layer, in)[0] : layer(in)[0];
    }
    return mean(square(matmul(y, w[3 + 2])));
  }
};

Net net_of(Mesh mesh) { return {placed(random_tensor({rows, width}, 9), mesh, P{"data"})}; }

class Gathers : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { detail::clear_gather_orders(); }
  Mesh mesh() const { return make_mesh({{"data", 4}}, {.private_replicas = GetParam()}); }
};
INSTANTIATE_TEST_SUITE_P(Replicas, Gathers, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "private" : "shared"; });

// The paths of all collectives of one kind in the forward or the backward pass.
Paths paths_of(const CommLedger& ledger, const std::string& kind, bool backward) {
  Paths paths;
  for (const CommRecord& r : ledger.records())
    if (r.kind == kind && r.backward == backward) paths.push_back(r.path);
  return paths;
}

TEST(Gathers, BlocksAreWhatOneElementOfAListOwns) {
  EXPECT_EQ(detail::block_of("layers.2.mlp.up.kernel"), "layers.2");
  EXPECT_EQ(detail::block_of("encoder.layers.10.experts.3.up"), "encoder.layers.10");
  EXPECT_EQ(detail::block_of("0"), "0");
  EXPECT_EQ(detail::block_of("embed.tokens"), "");
  EXPECT_EQ(detail::block_of("conv2.kernel"), "");
  EXPECT_EQ(detail::block_of(""), "");
}

TEST_P(Gathers, OfTheSecondStepAreOneForEachBlockAndPass) {
  const std::vector<Array> weights = weights_of(mesh());
  const Net net = net_of(mesh());
  const Step first = step(weights, net);
  CommLedger ledger;
  const Step second = step(weights, net), third = step(weights, net);
  EXPECT_TRUE(are_equal(first, second) && are_equal(first, third));
  EXPECT_EQ(second.communication, third.communication);
  ledger.clear();
  step(weights, net);
  EXPECT_EQ(paths_of(ledger, "all_gather", false),
            (Paths{"embed", "layers.0.up, layers.0.down", "layers.1.up, layers.1.down", "head"}));
  EXPECT_EQ(paths_of(ledger, "all_gather", true),
            (Paths{"head", "layers.1.down, layers.1.up", "layers.0.down, layers.0.up"}))
      << "the gradient of the embedding does not read it";
  EXPECT_EQ(paths_of(ledger, "reduce_scatter", true),
            (Paths{"head", "layers.1.down, layers.1.up", "layers.0.down, layers.0.up", "embed"}));
  EXPECT_EQ(ledger.bytes("all_gather"), (6 + 5) * bytes);
  EXPECT_EQ(ledger.bytes("reduce_scatter"), 6 * bytes / 4);
}

TEST_P(Gathers, ByParameterAreThoseOfTheFirstStep) {
  const std::vector<Array> weights = weights_of(mesh());
  const Net net = net_of(mesh());
  const GradientOptions alone{.gather_groups = GatherGroups::by_parameter};
  const Step first = step(weights, net, alone), second = step(weights, net, alone), blocks = step(weights, net);
  EXPECT_EQ(first.communication, second.communication);
  EXPECT_TRUE(are_equal(first, second) && are_equal(first, blocks));
  CommLedger ledger;
  step(weights, net, alone);
  EXPECT_EQ(ledger.count("all_gather"), 11);
  EXPECT_EQ(ledger.count("reduce_scatter"), 6);
  step(weights, net);
  EXPECT_EQ(ledger.count("all_gather"), 11 + 7) << "how a program groups belongs to its order";
}

TEST_P(Gathers, OfAStepInAnotherOrderAreLearnedAgain) {
  const std::vector<Array> weights = weights_of(mesh());
  Net net = net_of(mesh()), shorter = net;
  shorter.skipped = 0;
  detail::clear_gather_orders();
  const Step expected = step(weights, net), expected_shorter = step(weights, shorter);
  step(weights, net);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(are_equal(step(weights, net), expected));
    EXPECT_TRUE(are_equal(step(weights, shorter), expected_shorter));
  }
  step(weights, shorter);
  CommLedger ledger;
  step(weights, shorter);
  EXPECT_EQ(ledger.count("all_gather"), 3 + 2);
}

// Two programs with the same source line and parameter types: only the paths of the parameters distinguish them.
TEST_P(Gathers, OfOtherPathsAreAnotherProgram) {
  const Net net = net_of(mesh());
  const std::vector<Array> weights = weights_of(mesh()), same = weights_of(mesh());
  const std::vector<Array> others = weights_of(mesh(), {"embed", "a.up", "a.down", "b.up", "b.down", "head"});
  step(weights, net), step(others, net);
  const int64_t learned = detail::learned_gather_orders();
  CommLedger ledger;
  step(weights, net), step(same, net);
  EXPECT_EQ(ledger.count("all_gather"), 7 + 7);
  step(others, net);
  EXPECT_EQ(ledger.count("all_gather"), 7 + 7 + 11) << "they are in no list";
  EXPECT_EQ(detail::learned_gather_orders(), learned);
}

TEST_P(Gathers, OfRecomputedBlocksAreGroupedToo) {
  const std::vector<Array> weights = weights_of(mesh());
  Net net = net_of(mesh());
  const Step plain = step(weights, net);
  net.remat = true;
  const Step first = step(weights, net), second = step(weights, net);
  EXPECT_LE(difference(first, plain), 1e-14);
  EXPECT_TRUE(are_equal(first, second));
  CommLedger ledger;
  step(weights, net);
  // The head is gathered for the backward pass, and each block for its recomputation and for its backward pass.
  EXPECT_EQ(ledger.count("all_gather"), 4 + 1 + 2 * 2);
  EXPECT_EQ(ledger.count("reduce_scatter"), 4);
  EXPECT_EQ(ledger.bytes("reduce_scatter"), 6 * bytes / 4);
}

TEST_P(Gathers, OfCastWeightsMoveTheCast) {
  const std::vector<Array> weights = weights_of(mesh());
  const Net net{astype(net_of(mesh()).x, float32)};
  const auto half = [&](Arrays w) {
    std::vector<Array> cast;
    for (const Array& x : w) cast.push_back(astype(x, float32));
    return astype(net(cast), float64);
  };
  const Step first = step(weights, half), second = step(weights, half);
  EXPECT_TRUE(are_equal(first, second));
  CommLedger ledger;
  step(weights, half);
  EXPECT_EQ(ledger.count("all_gather"), 7);
  EXPECT_EQ(ledger.bytes("all_gather"), 11 * bytes / 2);
  EXPECT_EQ(ledger.bytes("reduce_scatter"), 6 * bytes / 4) << "gradients go back in the parameter's own type";
}

TEST_P(Gathers, TakeFrozenWeightsAlong) {
  const Net net = net_of(mesh());
  std::vector<Array> weights = weights_of(mesh());
  for (const Array& x : weights) x.impl()->weight = true;  // as filter_shard makes it
  const std::vector<Array> trained{weights[0], weights[5]};
  const auto loss = [&](Arrays w) { return net({w[0], weights[1], weights[2], weights[3], weights[4], w[1]}); };
  const Step first = step(trained, loss), second = step(trained, loss);
  EXPECT_TRUE(are_equal(first, second));
  CommLedger ledger;
  step(trained, loss);
  EXPECT_EQ(ledger.count("all_gather"), 7);
  weights[1] = placed(random_tensor({width, width}, 77), mesh(), P{"data"});
  weights[1].impl()->weight = true;
  weights[1].impl()->detail().path = detail::as_text("layers.0.up");
  const Step changed = step(trained, loss), again = step(trained, loss);
  EXPECT_GT(difference(changed, first), 1e-6) << "the new weight counts";
  EXPECT_TRUE(are_equal(changed, again));
}

TEST_P(Gathers, AreSingleWhereAGuardMayForbidThem) {
  const std::vector<Array> weights = weights_of(mesh());
  const Net net = net_of(mesh());
  const Step plain = step(weights, net);
  step(weights, net);
  CommLedger ledger;
  {
    const CommBudget budget(int64_t{1} << 40, {.throw_on_exceed = true});
    EXPECT_TRUE(are_equal(step(weights, net), plain));
    EXPECT_EQ(ledger.count("all_gather"), 11);
    EXPECT_EQ(ledger.count("reduce_scatter"), 6);
  }
  ledger.clear();
  EXPECT_TRUE(are_equal(step(weights, net), plain));
  EXPECT_EQ(ledger.count("all_gather"), 7) << "the order is still known";
}

TEST_P(Gathers, OfAStepThatFailsLeaveNothing) {
  const std::vector<Array> weights = weights_of(mesh());
  const Net net = net_of(mesh());
  const Step plain = step(weights, net);
  const auto fails = [&](Arrays w) {
    const Array y = matmul(matmul(net.x, w[0]), w[1]);
    throw std::runtime_error("stop");
    return sum(y);
  };
  EXPECT_THROW(step(weights, fails), std::runtime_error);
  CommLedger ledger;
  EXPECT_TRUE(are_equal(step(weights, net), plain));
  EXPECT_EQ(ledger.count("all_gather"), 7);
}

TEST(GatherOptions, AreChecked) {
  expect_error(ErrorKind::invalid_argument, "[value_and_grad] prefetch_groups: -1 given, expected the number of groups",
               [] { Tape({}, {.prefetch_groups = -1}); });
}

}  // namespace
}  // namespace tessera::gather_schedule_test
