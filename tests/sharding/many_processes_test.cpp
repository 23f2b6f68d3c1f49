// Several processes, started by mpiexec: placements, collectives, gradients and reading on meshes that lie across them.
#include <sstream>

#include "expect_error.h"
#include "law.h"
#include "sharding/collectives.h"
#include "sharding/make_array.h"
#include "sharding/processes.h"
#include "sharding/shard_map.h"
#include "sharding/together.h"

namespace tessera {
namespace {

using namespace tessera::testing;

// A mesh whose processes have boxes of these extents; without private replicas unless asked for.
Mesh mesh_in_boxes(const std::vector<MeshAxis>& axes, const std::vector<int64_t>& extents, bool private_replicas) {
  int64_t each = 1, n = 1;
  for (size_t a = 0; a < axes.size(); ++a) each *= extents[a], n *= axes[a].size;
  std::vector<int> devices;
  for (int64_t place = 0; place < n; ++place) {
    int64_t process = 0, here = 0, stride = n;
    for (size_t a = 0; a < axes.size(); ++a) {
      stride /= axes[a].size;
      const int64_t at = place / stride % axes[a].size;
      process = process * (axes[a].size / extents[a]) + at / extents[a];
      here = here * extents[a] + at % extents[a];
    }
    devices.push_back(static_cast<int>(process * each + here));
  }
  return make_mesh(axes, {.devices = devices, .private_replicas = private_replicas});
}

// The ways to lay a grid over the processes: along each axis inside them, across them, or both.
struct Way {
  std::vector<MeshAxis> axes;
  std::vector<int64_t> extents;
};

std::vector<Way> ways() {
  const int64_t p = process_count();
  std::vector<Way> all{{{{"a", 2 * p}}, {2}}, {{{"a", p}}, {1}}};
  for (const auto& [x, y] : {std::pair<int64_t, int64_t>{2, 2}, {2, 4}})
    for (int64_t i = 1; i <= x; i *= 2)
      for (int64_t j = 1; j <= y; j *= 2)
        if (x / i * (y / j) == p) all.push_back({{{"a", x}, {"b", y}}, {i, j}});
  return all;
}

std::string name_of(const Way& way) {
  std::string name = fmt::format("{} processes:", process_count());
  for (size_t a = 0; a < way.axes.size(); ++a)
    name += fmt::format(" {}={} by {}", way.axes[a].name, way.axes[a].size, way.extents[a]);
  return name;
}

// test(mesh, the same mesh without hardware), with shared and with private replicas.
template <class Test>
void on_every_way(const Test& test) {
  for (const Way& way : ways())
    for (const bool private_replicas : {false, true}) {
      SCOPED_TRACE(name_of(way) + (private_replicas ? ", private" : ", shared"));
      test(mesh_in_boxes(way.axes, way.extents, private_replicas), make_mesh(way.axes, {.abstract = true}));
    }
}

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
  std::function<Array(const Array&, const SpecEntry&)> ours;  // of the block of one device
  // The result of all devices, stacked, from their blocks, stacked: [n, ...] -> [n, ...].
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
      {"all_gather", [](const Array& x, const SpecEntry& e) { return all_gather(x, e, {.axis = 1, .tiled = true}); },
       [](const at::Tensor& x) { return to_all(at::cat(x.unbind(0), 1), x.size(0)); }},
      {"all_gather invarying",
       [](const Array& x, const SpecEntry& e) {
         return pvary(all_gather(x, e, {.axis = 0, .tiled = true, .to = Vma::invarying}), e);
       },
       [](const at::Tensor& x) { return to_all(at::cat(x.unbind(0), 0), x.size(0)); }},
      {"psum_scatter",
       [](const Array& x, const SpecEntry& e) { return psum_scatter(x, e, {.scatter_dimension = 1, .tiled = true}); },
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
       [](const at::Tensor& x) {
         return x * at::arange(x.size(0), at::kDouble).view({-1, 1, 1});
       }},
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

// Lists of axes in both orders, over which x is cut.
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

TEST(ManyProcesses, WhatIsSaidToBeEqualIsTheFirstDevices) {
  on_every_way([](Mesh mesh, Mesh) {
    const int64_t n = mesh.size("a");
    const at::Tensor x = random_tensor({n, 4}, 1);
    const auto first = shard_map([](const Array& b) { return b * 2; }, mesh, P{"a"}, P{}, {.check_vma = false});
    EXPECT_LE(difference(whole(first(from_tensor(x))), 2 * x.narrow(0, 0, 1)), 1e-15);
  });
}

// ---- values

TEST(ManyProcesses, TheSameSeedGivesTheSameBits) {
  const at::Tensor expected = to_tensor(normal(Key(7), {8, 16}));
  on_every_way([&](Mesh mesh, Mesh) {
    for (const PartitionSpec& spec : placements(mesh, {8, 16})) {
      if (!spec.unreduced_axes().empty()) continue;
      const Array x = device_put(normal(Key(7), {8, 16}), NamedSharding(mesh, spec));
      EXPECT_TRUE(at::equal(whole(x), expected)) << spec.to_string();
    }
  });
}

TEST(ManyProcesses, EachSeesItsDevicesAndKnowsOfTheOthers) {
  on_every_way([](Mesh mesh, Mesh) {
    EXPECT_EQ(mesh.process_count(), process_count());
    EXPECT_EQ(mesh.process_index(), process_index());
    EXPECT_EQ(static_cast<int64_t>(mesh.local_devices().size()) * process_count(), mesh.size());
    const at::Tensor x = random_tensor({8, 16}, 1);
    const Array a = placed(x, mesh, P{"a"});
    EXPECT_FALSE(a.is_fully_addressable());
    std::vector<int> mine;
    for (const Shard& shard : a.addressable_shards()) {
      mine.push_back(shard.device);
      EXPECT_EQ(shard.process, process_index());
      EXPECT_TRUE(at::equal(to_tensor(shard.data), detail::cut(x, shard.index)));
    }
    EXPECT_EQ(mine, mesh.local_devices());
    EXPECT_EQ(static_cast<int64_t>(a.global_shards().size()), mesh.size());
  });
}

TEST(ManyProcesses, ReadingDoesNotCommunicate) {
  const Mesh mesh = make_mesh({{"a", process_count()}, {"b", 2}});
  const at::Tensor x = random_tensor({8, 16}, 1);
  EXPECT_TRUE(at::equal(to_tensor(placed(x, mesh, P{none, "b"})), x));
  const Array apart = placed(x, mesh, P{"a"});
  expect_error(ErrorKind::bad_argument,
               "[to_host] float64[8@a,16] has parts on other processes, along \"a\". Reading does not communicate: "
               "gather it first, on all processes.",
               [&] { to_tensor(apart); });
  std::ostringstream text;
  text << placed(at::arange(process_count(), at::kInt), mesh, P{"a"});
  EXPECT_EQ(text.str(), fmt::format("int32[{0}@a] on process {1} of {0}\n[{1}:{2}] on device {3} [{1}]",
                                    process_count(), process_index(), process_index() + 1, 2 * process_index()));
}

TEST(ManyProcesses, ArraysAreMadeOfWhatEachProcessHas) {
  on_every_way([](Mesh mesh, Mesh) {
    const at::Tensor x = random_tensor({8, 16}, 1);
    for (const PartitionSpec& spec : placements(mesh, {8, 16})) {
      if (!spec.unreduced_axes().empty()) continue;
      SCOPED_TRACE(spec.to_string());
      const NamedSharding sharding(mesh, spec);
      const Array a = device_put(from_tensor(x), sharding);
      std::vector<Array> shards;
      for (const Shard& shard : a.addressable_shards()) shards.push_back(shard.data);
      EXPECT_TRUE(at::equal(whole(make_array_from_shards({8, 16}, sharding, shards)), x));
      int made = 0;
      const Array called = make_array_from_callback({8, 16}, sharding, [&](const IndexRanges& block) {
        ++made;
        return from_tensor(detail::cut(x, block));
      });
      EXPECT_TRUE(at::equal(whole(called), x));
      EXPECT_LE(made, static_cast<int>(mesh.local_devices().size()));
    }
  });
}

TEST(ManyProcesses, RowsOfEachProcess) {
  const int64_t p = process_count(), i = process_index();
  const Mesh mesh = make_mesh({{"a", p}, {"b", 2}});
  const at::Tensor x = random_tensor({4 * p, 6}, 1);
  const at::Tensor rows = x.narrow(0, 4 * i, 4);
  for (const PartitionSpec& spec : {P{"a"}, P{{"a", "b"}}, P{"a", "b"}}) {
    const Array made = make_array_from_process_local_data(NamedSharding(mesh, spec), from_tensor(rows));
    EXPECT_EQ(made.shape(), (Shape{4 * p, 6}));
    EXPECT_TRUE(at::equal(whole(made), x)) << spec.to_string();
  }
  const Array equal = make_array_from_process_local_data(NamedSharding(mesh, P{"b"}), from_tensor(x));
  EXPECT_EQ(equal.shape(), (Shape{4 * p, 6}));
  expect_error(ErrorKind::shape_mismatch,
               fmt::format("[make_array_from_process_local_data] float64[4,6] given for the global shape ({}, 6): this "
                           "process holds [{}:{}, 0:6] of it",
                           8 * p, 8 * i, 8 * i + 8),
               [&] {
                 make_array_from_process_local_data(NamedSharding(mesh, P{"a"}), from_tensor(rows), {8 * p, 6});
               });
}

// ---- gradients

// Two uses of a weight that reduce over different axes, and one that reduces over none.
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
          if (read) EXPECT_LE(difference(whole(gradient), w.grad()), 1e-14);
          return text;
        };
        EXPECT_EQ(run(mesh, {}, true), run(abstract, {}, false));
        run(mesh, {.reduce = false}, true);
      }
  });
}

// ---- what is refused

TEST(ManyProcesses, EveryProcessHasABlockOfTheGrid) {
  const int p = process_count();
  expect_error(ErrorKind::device_mismatch,
               fmt::format("[make_mesh] {} devices are no equal parts for {} processes. Choose another mesh, or say "
                           "with TESSERA_CPU_DEVICES how many devices each process has.",
                           p + 1, p),
               [&] {
                 make_mesh({{"a", p + 1}});
               });
  std::vector<int> dealt;
  for (int i = 0; i < 2; ++i)
    for (int q = 0; q < p; ++q) dealt.push_back(2 * q + i);
  expect_error(
      ErrorKind::device_mismatch,
      "[make_mesh] the devices of process 0 are no block of the grid, the same range along each axis for every "
      "process. Order the devices so that neighbours belong to one process.",
      [&] {
        make_mesh({{"a", 2 * p}}, {.devices = dealt});
      });
}

}  // namespace
}  // namespace tessera
