// Several processes: every sharding, collective and gradient on meshes across them equals one process's.
#include "sharding/operations/neural/attention.h"
#include "sharding/shard_map/collectives.h"
#include "sharding/shard_map/shard_map.h"
#include "tests/processes/ways.h"

namespace tessera::arrays_test {
namespace {

using namespace tessera::testing;

// ---- placements

struct Moved {
  at::Tensor value, gradient;
  std::string ledger;
};

Moved move(const at::Tensor& x, const at::Tensor& weights, const PartitionSpec& from, const PartitionSpec& to,
           Mesh mesh) {
  CommLedger ledger;
  Tape tape({placed(x, mesh, P{})});
  const Array one = from_tensor(at::ones({}, at::kDouble));
  const Array start = redistribute(tape.shadows()[0] * one, NamedSharding(mesh, from));
  const Array y = redistribute(start, NamedSharding(mesh, to));
  const Array gradient = tape.gradients(sum(y * from_tensor(weights)))[0];
  Moved result{.value = {}, .gradient = {}, .ledger = ledger_text(ledger)};
  if (mesh.is_abstract()) return result;
  result.value = whole(y);
  result.gradient = whole(gradient);
  return result;
}

TEST(ManyProcesses, EveryPairOfPlacements) {
  const at::Tensor x = random_tensor({8, 16}, 1), weights = random_tensor({8, 16}, 2);
  int cases = 0;
  on_every_way([&](Mesh mesh, Mesh abstract) {
    const auto all = placements(mesh, {8, 16}, /*with_reduced=*/true);
    for (const PartitionSpec& from : all)
      for (const PartitionSpec& to : all) {
        SCOPED_TRACE(from.to_string() + " -> " + to.to_string());
        const Moved got = move(x, weights, from, to, mesh);
        EXPECT_LE(difference(got.value, x), 1e-15);
        EXPECT_LE(difference(got.gradient, weights), 1e-15);
        EXPECT_EQ(got.ledger, move(x, weights, from, to, abstract).ledger);
        ++cases;
      }
  });
  std::cout << cases << " moves\n";
}

TEST(ManyProcesses, ZerosKeepTheirSign) {
  const at::Tensor zeros = at::full({8, 16}, -0.0, at::kFloat);
  const Array ids = array<int32_t>({0, 7, 3, 4, 4, 5, 6, 1});
  on_every_way([&](Mesh mesh, Mesh) {
    for (const PartitionSpec& spec : placements(mesh, {8, 16}, /*with_reduced=*/true)) {
      SCOPED_TRACE(spec.to_string());
      const Array x = placed(zeros, mesh, spec);
      for (const Array& y : {x, take(x, ids, 0), take(x, ids, 1), embedding(x, ids), scatter_add(x, ids, x)})
        EXPECT_TRUE(whole(y).signbit().all().item<bool>()) << y.type_string();
    }
  });
}

TEST(ManyProcesses, BetweenMeshesInAnotherOrder) {
  const at::Tensor x = random_tensor({8, 16}, 1), weights = random_tensor({8, 16}, 2);
  on_every_way([&](Mesh here, Mesh) {
    std::vector<int> devices = here.devices();
    std::sort(devices.rbegin(), devices.rend());
    const Mesh there =
        make_mesh({{"c", here.size()}}, {.devices = devices, .private_replicas = here.private_replicas()});
    for (const PartitionSpec& from : placements(here, {8, 16}))
      for (const PartitionSpec& to : placements(there, {8, 16})) {
        SCOPED_TRACE(from.to_string() + " -> " + to.to_string());
        Tape tape({placed(x, here, without_sets(from))});
        const Array start = redistribute(tape.shadows()[0], NamedSharding(here, from));
        const Array y = device_put(start, NamedSharding(there, to));
        EXPECT_LE(difference(whole(y), x), 1e-15);
        const Array gradient = tape.gradients(sum(y * from_tensor(weights)))[0];
        EXPECT_LE(difference(whole(gradient), weights), 1e-15);
      }
  });
}

TEST(ManyProcesses, AFullSetOfDtypesMoves) {
  on_every_way([&](Mesh mesh, Mesh) {
    for (const DType dtype : {uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64, boolean}) {
      SCOPED_TRACE(tessera::name_of(dtype));
      const at::Tensor x = random_integers({8, 16}, 2, 5).to(static_cast<at::ScalarType>(dtype));
      const Array a = placed(x, mesh, P{"a"});
      EXPECT_TRUE(at::equal(whole(a), x));
      EXPECT_TRUE(at::equal(whole(reshard(a, P{none, "a"})), x));
    }
  });
}

// ---- collectives

struct Collective {
  std::string name;
  std::function<Array(const Array&, const SpecEntry&)> ours;  // applied to the block of one device
  // The stacked results of all devices, from their stacked blocks: [n, ...] -> [n, ...].
  std::function<at::Tensor(const at::Tensor&)> theirs;
};

at::Tensor to_all(const at::Tensor& one, int64_t n) { return one.unsqueeze(0).repeat({n, 1, 1}); }

std::vector<Collective> collectives() {
  return {
      {"psum", [](const Array& x, const SpecEntry& e) { return pvary(psum(x, e), e); },
       [](const at::Tensor& x) { return to_all(x.sum(0), x.size(0)); }},
      {"pmean", [](const Array& x, const SpecEntry& e) { return pvary(pmean(x, e), e); },
       [](const at::Tensor& x) { return to_all(x.mean(0), x.size(0)); }},
      {"pmax", [](const Array& x, const SpecEntry& e) { return pvary(pmax(x, e), e); },
       [](const at::Tensor& x) { return to_all(x.amax(0), x.size(0)); }},
      {"pmin", [](const Array& x, const SpecEntry& e) { return pvary(pmin(x, e), e); },
       [](const at::Tensor& x) { return to_all(x.amin(0), x.size(0)); }},
      {"all_gather", [](const Array& x, const SpecEntry& e) { return all_gather(x, e, {.dim = 1, .tiled = true}); },
       [](const at::Tensor& x) { return to_all(at::cat(x.unbind(0), 1), x.size(0)); }},
      {"all_gather invarying",
       [](const Array& x, const SpecEntry& e) {
         return pvary(all_gather(x, e, {.dim = 0, .tiled = true, .to = Vma::invarying}), e);
       },
       [](const at::Tensor& x) { return to_all(at::cat(x.unbind(0), 0), x.size(0)); }},
      {"psum_scatter",
       [](const Array& x, const SpecEntry& e) { return psum_scatter(x, e, {.scatter_dim = 1, .tiled = true}); },
       [](const at::Tensor& x) { return at::stack(x.sum(0).chunk(x.size(0), 1)); }},
      {"all_to_all", [](const Array& x, const SpecEntry& e) { return all_to_all(x, e, 1, 0, {.tiled = true}); },
       [](const at::Tensor& x) {
         std::vector<at::Tensor> parts;
         for (const at::Tensor& part : x.chunk(x.size(0), 2)) parts.push_back(at::cat(part.unbind(0), 0));
         return at::stack(parts);
       }},
      {"ppermute",
       [](const Array& x, const SpecEntry& e) {
         std::vector<std::pair<int, int>> ring;
         const int n = static_cast<int>(axis_size(e));
         for (int i = 0; i + 1 < n; ++i) ring.emplace_back(i, (i + n / 2 + 1) % n);
         return ppermute(x, e, ring);
       },
       [](const at::Tensor& x) {
         const int64_t n = x.size(0);
         at::Tensor y = at::zeros_like(x);
         for (int64_t i = 0; i + 1 < n; ++i) y[(i + n / 2 + 1) % n] = x[i];
         return y;
       }},
      {"axis_index", [](const Array& x, const SpecEntry& e) { return x * astype(axis_index(e), float64); },
       [](const at::Tensor& x) { return x * at::arange(x.size(0), at::kDouble).view({-1, 1, 1}); }},
      {"per_device",
       [](const Array& x, const SpecEntry& e) {
         return x + per_device(fold_in_axis(Key(3), e), [](const Key& k) { return normal(k, {2, 16}, float64); });
       },
       [](const at::Tensor& x) {
         std::vector<at::Tensor> noise;
         for (int64_t i = 0; i < x.size(0); ++i)
           noise.push_back(to_tensor(normal(fold_in(Key(3), static_cast<uint32_t>(i)), {2, 16}, float64)));
         return x + at::stack(noise);
       }},
  };
}

// The lists of axes, in both orders, that x is sharded over.
std::vector<std::vector<std::string>> axis_lists(Mesh mesh) {
  if (mesh.axes().size() == 1) return {{"a"}};
  return {{"a"}, {"b"}, {"a", "b"}, {"b", "a"}};
}

TEST(ManyProcesses, EveryCollective) {
  int cases = 0;
  on_every_way([&](Mesh mesh, Mesh abstract) {
    for (const auto& names : axis_lists(mesh))
      for (const Collective& c : collectives()) {
        SCOPED_TRACE(fmt::format("{} over {}", c.name, fmt::join(names, ",")));
        const SpecEntry entry(names);
        int64_t n = 1;
        for (const std::string& name : names) n *= mesh.size(name);
        const at::Tensor blocks = random_tensor({n, 2, 16}, 3).requires_grad_();
        const at::Tensor expected = c.theirs(blocks);
        const at::Tensor weights = random_tensor(expected.sizes().vec(), 4);
        (expected * weights).sum().backward();
        const auto run = [&](Mesh on, bool read) {
          CommLedger ledger;
          const PartitionSpec spec{std::vector<SpecEntry>{entry}};
          Tape tape({placed(blocks.detach(), on, P{})});
          const auto body = [&](const Array& x) { return expand_dims(c.ours(reshape(x, {2, 16}), entry), {0}); };
          const Array y = shard_map(body, on, spec, spec)(tape.shadows()[0]);
          const Array gradient = tape.gradients(sum(y * from_tensor(weights)))[0];
          const std::string text = ledger_text(ledger);
          if (!read) return text;
          EXPECT_LE(difference(whole(y), expected), 1e-14);
          EXPECT_LE(difference(whole(gradient), blocks.grad()), 1e-14);
          return text;
        };
        EXPECT_EQ(run(mesh, true), run(abstract, false));
        ++cases;
      }
  });
  std::cout << cases << " collectives\n";
}

TEST(ManyProcesses, AReplicatedValueIsTheFirstDevices) {
  on_every_way([](Mesh mesh, Mesh abstract) {
    const int64_t n = mesh.size("a");
    const at::Tensor x = random_tensor({n, 4}, 1);
    for (const Mesh& each : {mesh, abstract}) {
      const auto first = shard_map([](const Array& b) { return b * 2; }, each, P{"a"}, P{}, {.check_vma = false});
      const Array given = placed(x, each, P{"a"});
      const CommLedger ledger;
      const Array result = first(given);
      const bool moves = each.impl()->crossing() >> each.impl()->find("a") & 1;
      EXPECT_EQ(ledger.records().size(), moves ? 1U : 0U);
      for (const CommRecord& r : ledger.records()) EXPECT_EQ(r.kind + " " + std::to_string(r.bytes), "all_reduce 32");
      if (each == mesh) {
        EXPECT_LE(difference(whole(result), 2 * x.narrow(0, 0, 1)), 1e-15);
      }
    }
  });
}

// ---- gradients

// One use of the weight is reduced over some axes, and the other one over none.
TEST(ManyProcesses, GradientsOfWeightsOnEveryPlacement) {
  const at::Tensor x = random_tensor({8, 16}, 1), w = random_tensor({16, 8}, 2).requires_grad_();
  (at::matmul(x, w).tanh().sum() + w.square().sum()).backward();
  on_every_way([&](Mesh mesh, Mesh abstract) {
    for (const PartitionSpec& data : placements(mesh, {8, 16}))
      for (const PartitionSpec& weight : placements(mesh, {16, 8})) {
        if (!weight.unreduced_axes().empty() || !data.unreduced_axes().empty()) continue;
        SCOPED_TRACE(data.to_string() + " times " + weight.to_string());
        const auto run = [&](Mesh on, const GradientOptions& options, bool read) {
          CommLedger ledger;
          Tape tape({placed(w.detach(), on, weight)}, options);
          const Array v = tape.shadows()[0];
          const Array loss = sum(tanh(matmul(placed(x, on, data), v))) + sum(v * v);
          const Array gradient = tape.gradients(loss)[0];
          const std::string text = ledger_text(ledger);
          if (!read) return text;
          EXPECT_LE(difference(whole(gradient), w.grad()), 1e-14);
          return text;
        };
        EXPECT_EQ(run(mesh, {}, true), run(abstract, {}, false));
        run(mesh, {.reduce = false}, true);
      }
  });
}

// Blocks of keys and values are sent around the ring of processes, and back with their gradients.
TEST(ManyProcesses, AttentionInARing) {
  const at::Tensor x = random_tensor({1, 16, 3, 4}, 1).requires_grad_();
  const at::Tensor first = x.transpose(1, 2);
  at::scaled_dot_product_attention(first, first, first, {}, 0.0, /*is_causal=*/true).square().sum().backward();
  on_every_way([&](Mesh mesh, Mesh abstract) {
    const auto run = [&](Mesh on, bool read) {
      CommLedger ledger;
      Tape tape({placed(x.detach(), on, P{none, "a"})});
      const Array y = tape.shadows()[0];
      const Array out = dot_product_attention(y, y, y, {.causal = true, .context = ContextParallelism::ring});
      const Array gradient = tape.gradients(sum(square(out)))[0];
      const std::string text = ledger_text(ledger);
      if (!read) return text;
      EXPECT_LE(difference(whole(gradient), x.grad()), 1e-13);
      return text;
    };
    EXPECT_EQ(run(mesh, true), run(abstract, false));
  });
}

}  // namespace
}  // namespace tessera::arrays_test
