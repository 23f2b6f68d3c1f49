// redistribute: the value, gradient, route and ledger of every ordered pair of shardings.
#include "sharding/redistribution/redistribute.h"

#include "sharding/accounting/communication_guard.h"
#include "sharding/base/environment.h"
#include "sharding/redistribution/coalesced.h"
#include "sharding/redistribution/route.h"
#include "tests/sharding/law.h"

namespace tessera::redistribute_test {
namespace {

using namespace tessera::testing;

const std::vector<MeshAxis> grid{{"a", 2}, {"b", 3}};

struct Moved {
  at::Tensor value, gradient;
  std::string ledger;
  int64_t bytes = 0;
  size_t steps = 0;
};

Moved move(const at::Tensor& x, const at::Tensor& weights, const PartitionSpec& from, const PartitionSpec& to,
           Mesh mesh) {
  const Array one = from_tensor(at::ones({}, at::kDouble));
  Tape tape({from_tensor(x)});
  const Array start = redistribute(tape.shadows()[0] * one, NamedSharding(mesh, from));
  CommLedger ledger;
  const Array y = redistribute(start, NamedSharding(mesh, to));
  Moved result{.value = to_tensor(y), .gradient = {}, .ledger = ledger_text(ledger), .bytes = ledger.bytes()};
  result.steps = detail::route(start.impl()->type, start.impl()->slots, y.impl()->type).steps.size();
  EXPECT_EQ(y.type_string(), Array(start).is_same(y) ? start.type_string() : y.type_string());
  result.gradient = to_tensor(tape.gradients(sum(y * from_tensor(weights)))[0]);
  result.ledger += ledger_text(ledger);
  return result;
}

// Visits every pair, with shared and with private replicas, whose ledgers must be equal.
template <class Visit>
void each_pair(const Mesh (&meshes)[2], const std::vector<PartitionSpec>& all, const Shape& shape, Visit visit) {
  const at::Tensor x = random_tensor(shape, 1), weights = random_tensor(shape, 2);
  for (const PartitionSpec& from : all)
    for (const PartitionSpec& to : all) {
      SCOPED_TRACE(from.to_string() + " -> " + to.to_string());
      std::string ledgers[2];
      for (const Mesh mesh : meshes) {
        const Moved got = move(x, weights, from, to, mesh);
        EXPECT_LE(difference(got.value, x), 1e-15);
        EXPECT_LE(difference(got.gradient, weights), 1e-15);
        visit(got);
        ledgers[mesh.private_replicas()] = got.ledger;
      }
      EXPECT_EQ(ledgers[0], ledgers[1]);
    }
  std::cout << all.size() * all.size() * 2 << " cases\n";
}

TEST(Redistribute, ALongChainIsDestroyedByALoop) {
  const Mesh mesh = make_mesh({{"a", 2}});
  const NamedSharding placings[] = {NamedSharding(mesh, P{}), NamedSharding(mesh, P{"a"})};
  const auto chain = [&](Array x) {  // the last array owns all others
    for (int i = 1; i <= 100'000; ++i) x = redistribute(x, placings[i % 2]);
    return x;
  };
  const Array x = placed(at::ones({2}, at::kDouble), mesh, P{});
  EXPECT_EQ(chain(x).to_host<double>(), (std::vector<double>{1, 1}));
  Tape tape({x});
  EXPECT_EQ(tape.gradients(sum(chain(tape.shadows()[0])))[0].to_host<double>(), (std::vector<double>{1, 1}));
}

TEST(Redistribute, EveryPairOfPlacements) {
  const Mesh meshes[] = {make_mesh(grid), make_mesh(grid, {.private_replicas = true})};
  const auto all = placements(meshes[0], {6, 12}, /*with_reduced=*/true);
  ASSERT_EQ(all.size(), 27u);
  size_t longest = 0;
  each_pair(meshes, all, {6, 12}, [&](const Moved& got) {
    EXPECT_LE(got.bytes, 3 * 6 * 12 * 8);
    longest = std::max(longest, got.steps);
  });
  EXPECT_LE(longest, 5u);
  std::cout << "longest route " << longest << "\n";
}

// Axes that divide no dimension: 5 over two devices, 7 over three, and both over six, where some devices have only
// padding.
TEST(Redistribute, EveryPairOfPaddedPlacements) {
  const detail::CheckScope padding_is_zeros;
  const Mesh meshes[] = {make_mesh(grid), make_mesh(grid, {.private_replicas = true})};
  each_pair(meshes, placements(meshes[0], {5, 7}, /*with_reduced=*/true, Uneven::pad), {5, 7}, [](const Moved&) {});
}

// The rows of the route table: collectives, and their bytes on each device. x is float64[6,12], 576 bytes.
TEST(Redistribute, OneRowAtATime) {
  struct Case {
    PartitionSpec from, to;
    std::string forward, backward;
  };
  const PartitionSpec whole, pending = P{}.unreduced({"a"}), reduced = P{}.reduced({"a"});
  const Case cases[] = {
      {pending, whole, "all_reduce a 576", ""},
      {pending, reduced, "all_reduce a 576", "all_reduce a 576"},
      {pending, P{"a"}, "reduce_scatter a 288", "all_gather a 576"},
      {P{"a"}, whole, "all_gather a 576", ""},
      {P{"a"}, reduced, "all_gather a 576", "reduce_scatter a 288"},
      {P{"a"}, P{none, "a"}, "all_to_all a 288", "all_to_all a 288"},
      {P{"a"}, pending, "", ""},
      {whole, P{"a"}, "", "all_gather a 576"},
      {whole, reduced, "", "all_reduce a 576"},
      {whole, pending, "", ""},
      {reduced, whole, "", ""},
      {P{{"a", "b"}}, whole, "all_gather a,b 576", ""},
      {P{{"b", "a"}}, whole, "all_gather a,b 576", ""},
      {P{}.unreduced({"a", "b"}), whole, "all_reduce a,b 576", ""},
      {P{}.unreduced({"a", "b"}), P{{"a", "b"}}, "reduce_scatter a,b 96", "all_gather a,b 576"},
      {P{"a"}.unreduced({"b"}), P{"a"}, "all_reduce b 288", ""},
      {P{"a"}.unreduced({"b"}), P{"a", "b"}, "reduce_scatter b 96", "all_gather b 288"},
      {P{"a"}, P{none, "b"}, "block_exchange a,b 96", "block_exchange a,b 192"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.from.to_string() + " -> " + c.to.to_string());
    const Mesh mesh = make_mesh(grid);
    Tape tape({from_tensor(random_tensor({6, 12}, 1))});
    const Array start =
        redistribute(tape.shadows()[0] * from_tensor(at::ones({}, at::kDouble)), NamedSharding(mesh, c.from));
    // The cotangent of y has y's sharding, so that only redistribute communicates.
    const Array weights = redistribute(from_tensor(random_tensor({6, 12}, 2)), NamedSharding(mesh, without_sets(c.to)));
    CommLedger ledger;
    const Array y = redistribute(start, NamedSharding(mesh, c.to));
    std::string forward, backward;
    const auto write = [&](bool pass) {
      std::string text;
      for (const CommRecord& r : ledger.records())
        if (r.backward == pass && r.operation == "redistribute")
          text += fmt::format("{}{} {} {}", text.empty() ? "" : " ", r.kind, r.mesh_axes, r.bytes);
      return text;
    };
    forward = write(false);
    ledger.clear();
    tape.gradients(sum(y * weights));
    backward = write(true);
    EXPECT_EQ(forward, c.forward);
    // The gradient of `start` communicates, too; only the rows of the move are compared.
    EXPECT_TRUE(backward.starts_with(c.backward)) << backward;
  }
}

TEST(Redistribute, BetweenMeshesInAnotherOrder) {
  const at::Tensor x = random_tensor({6, 12}, 1), weights = random_tensor({6, 12}, 2);
  for (const bool private_replicas : {false, true}) {
    const Mesh here = make_mesh(grid, {.private_replicas = private_replicas});
    const Mesh there =
        make_mesh({{"c", 3}, {"d", 2}}, {.devices = {5, 3, 1, 0, 2, 4}, .private_replicas = private_replicas});
    for (const PartitionSpec& from : placements(here, {6, 12}))
      for (const PartitionSpec& to : placements(there, {6, 12}, true)) {
        SCOPED_TRACE(from.to_string() + " -> " + to.to_string());
        Tape tape({placed(x, here, without_sets(from))});
        const Array start = redistribute(tape.shadows()[0], NamedSharding(here, from));
        const Array y = device_put(start, NamedSharding(there, to));
        EXPECT_LE(difference(to_tensor(y), x), 1e-15);
        EXPECT_TRUE(y.sharding().mesh() == there);
        EXPECT_LE(difference(to_tensor(tape.gradients(sum(y * from_tensor(weights)))[0]), weights), 1e-15);
      }
  }
}

// A resharding in a list of arrays is recorded like a resharding of a single array.
TEST(Redistribute, CoalescedMovesCountAsTheyDoAlone) {
  const Mesh mesh = make_mesh(grid);
  const at::Tensor x = random_tensor({6, 12}, 1);
  for (const PartitionSpec& from : placements(mesh, {6, 12}))
    for (const PartitionSpec& to : placements(mesh, {6, 12})) {
      SCOPED_TRACE(from.to_string() + " -> " + to.to_string());
      const Array start = placed(x, mesh, from), place = placed(x, mesh, to);
      const auto kinds_of = [](const CommLedger& ledger) {
        std::string text;
        for (const CommRecord& r : ledger.records()) text += fmt::format("{} {} {}, ", r.kind, r.mesh_axes, r.bytes);
        return text;
      };
      CommLedger alone;
      redistribute(start, NamedSharding(mesh, to));
      const std::string expected = kinds_of(alone);
      CommLedger coalesced;
      Array one = start;
      place_coalesced({&one}, {&place}, "test");
      EXPECT_EQ(kinds_of(coalesced), expected);
      EXPECT_LE(difference(to_tensor(one), x), 0);
    }
}

// Resharding an array without elements is not communication: it is neither recorded nor forbidden.
TEST(Redistribute, WithoutElementsNothingIsCommunicated) {
  const Mesh mesh = make_mesh(grid);
  const Array empty = placed(at::zeros({0, 12}), mesh, P{none, "b"}), whole = placed(at::zeros({0, 12}), mesh, P{});
  const Array x = placed(random_tensor({6, 12}, 1), mesh, P{"a"});
  const auto forbidden = forbid_implicit_communication();
  CommLedger ledger;
  Array moved = empty;
  place_coalesced({&moved}, {&whole}, "test");
  Tape tape({whole});
  tape.gradients(sum(matmul(astype(x, float32), transpose(tape.shadows()[0]))));
  EXPECT_EQ(ledger.records().size(), 0u) << ledger_text(ledger);
}

}  // namespace
}  // namespace tessera::redistribute_test
