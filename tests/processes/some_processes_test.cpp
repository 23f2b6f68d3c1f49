// Meshes over some of the processes: these train as one device does, and the others hold shapes without data.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "nn/checkpoint/checkpoint.h"
#include "nn/layers/mlp.h"
#include "nn/placement/filter_shard.h"
#include "nn/placement/table.h"
#include "nn/transformations/pipeline.h"
#include "nn/transformations/value_and_grad.h"
#include "optim/optimizer.h"
#include "sharding/accounting/ledger.h"
#include "sharding/operations.h"
#include "sharding/operations/shape/make_array.h"
#include "sharding/placement/mesh.h"
#include "sharding/random/random.h"
#include "sharding/runtime/consensus.h"
#include "tests/processes/ways.h"
#include "tests/sharding/expect_error.h"

namespace tessera::some_processes_test {
namespace {

using namespace tessera::testing;

struct Model {
  std::vector<nn::Mlp> layers;

  static Model init(const Key& key) {
    Model model;
    for (uint32_t i = 0; i < 2; ++i)
      model.layers.push_back(nn::Mlp::init(fold_in(key, i), {"embed", 8}, {"hidden", 16}));
    return model;
  }
  Array operator()(Array x) const {
    for (const nn::Mlp& layer : layers) x = x + layer(x);
    return x;
  }
};

Array loss_of(const Model& model, const Array& x) { return mean(square(model(x))); }

// Every process has two devices.
class SomeProcesses : public ::testing::Test {
 protected:
  SomeProcesses() { setenv("TESSERA_CPU_DEVICES", "2", 1); }
  ~SomeProcesses() override { unsetenv("TESSERA_CPU_DEVICES"); }
};

// Returns the first process of the mesh. The last half of the processes are its members.
int first_member() { return process_count() - process_count() / 2; }
bool is_member() { return process_index() >= first_member(); }

std::vector<int> devices_of_members() {
  std::vector<int> devices;
  for (int id = 2 * first_member(); id < 2 * process_count(); ++id) devices.push_back(id);
  return devices;
}
std::vector<MeshAxis> grid() { return {{"data", process_count() / 2}, {"model", 2}}; }
Mesh mesh_of_members(bool private_replicas = false) {
  return make_mesh(grid(), {.devices = devices_of_members(), .private_replicas = private_replicas});
}
std::string words_of_members() { return process_count() == 2 ? "process 1" : "processes 2 and 3"; }

const std::vector<Rules> rules{
    {{"batch", "data"}, {"embed", replicated}, {"hidden", "model"}},
    {{"batch", {"data", "model"}}, {"embed", {"data", "model"}}, {"hidden", replicated}},
};

Array batch_of(int step) { return normal(Key(100 + step), {16, 8}); }

// The losses and gradient norms of a few steps; empty on processes that cannot read them.
std::vector<double> curve_of(Model model, const std::optional<MeshRules>& mesh_rules) {
  if (mesh_rules) model = nn::filter_shard(model, *mesh_rules);
  auto optimizer =
      optim::Optimizer(model, optim::chain(optim::clip_by_global_norm(0.5), optim::adamw({.learning_rate = 1e-2})));
  std::vector<double> values;
  for (int i = 0; i < 3; ++i) {
    const Array x = mesh_rules ? device_put(batch_of(i), {"batch", none}, *mesh_rules) : batch_of(i);
    const auto [loss, gradients] = nn::value_and_grad(loss_of)(model, x);
    const Array norm = optim::global_norm(gradients);
    if (!mesh_rules || is_member()) values.push_back(loss.item<double>()), values.push_back(norm.item<double>());
    optimizer.update(model, gradients);
  }
  return values;
}

TEST_F(SomeProcesses, TrainAsOneDeviceDoes) {
  const std::vector<double> expected = curve_of(Model::init(Key(0)), std::nullopt);
  for (const Rules& table : rules)
    for (const bool private_replicas : {false, true}) {
      const std::vector<double> given =
          curve_of(Model::init(Key(0)), MeshRules(mesh_of_members(private_replicas), table));
      ASSERT_EQ(given.size(), is_member() ? expected.size() : 0U);
      for (size_t i = 0; i < given.size(); ++i) EXPECT_NEAR(given[i], expected[i], 1e-5) << i;
    }
}

// Two halves of the processes, each with its own mesh, in one program.
TEST_F(SomeProcesses, AreSeveralSideBySide) {
  std::vector<int> first, last = devices_of_members();
  for (const int id : last) first.push_back(id - 2 * first_member());
  const MeshRules here(make_mesh(grid(), {.devices = first}), rules[0]), there(mesh_of_members(), rules[1]);
  const Model a = nn::filter_shard(Model::init(Key(0)), here), b = nn::filter_shard(Model::init(Key(0)), there);
  const Array x = device_put(batch_of(0), {"batch", none}, here), y = device_put(batch_of(0), {"batch", none}, there);
  const Array loss = nn::value_and_grad(loss_of)(a, x).first, other = nn::value_and_grad(loss_of)(b, y).first;
  const double expected = loss_of(Model::init(Key(0)), batch_of(0)).item<double>();
  EXPECT_NEAR((is_member() ? other : loss).item<double>(), expected, 1e-5);
  expect_error(ErrorKind::device_mismatch, {"data=", "model=2"}, [&] { loss + other; });
}

TEST_F(SomeProcesses, KnowWhoHasWhat) {
  const Mesh mesh = mesh_of_members();
  EXPECT_EQ(mesh, mesh_of_members());
  EXPECT_EQ(mesh.process_count(), process_count() / 2);
  EXPECT_EQ(mesh.process_index(), is_member() ? process_index() - first_member() : -1);
  EXPECT_EQ(mesh.is_abstract(), !is_member());
  EXPECT_EQ(mesh.local_devices().size(), is_member() ? 2U : 0U);
  EXPECT_EQ(mesh.devices(), devices_of_members());
  const Array x = device_put(batch_of(0), NamedSharding(mesh, P{none, "model"}));
  EXPECT_EQ(x.shard_bytes(), 16 * 4 * 4);
  EXPECT_EQ(x.is_fully_addressable(), is_member() && mesh.process_count() == 1);
  EXPECT_EQ(x.global_shards().size(), static_cast<size_t>(mesh.size()));
  EXPECT_EQ(x.global_shards()[0].process, first_member());
  EXPECT_EQ(x.addressable_shards().size(), is_member() ? 2U : 0U);
  const Array total = gather(sum(x));
  if (is_member()) {
    EXPECT_NEAR(total.item<double>(), sum(batch_of(0)).item<double>(), 1e-4);
    return;
  }
  expect_error(ErrorKind::invalid_argument,
               fmt::format("[to_host] float32[] is on the mesh ({}), whose devices are those of {}. Reading does not "
                           "communicate: read it there.",
                           mesh.to_string(), words_of_members()),
               [&] { total.item<float>(); });
  std::ostringstream text;
  text << total;
  EXPECT_EQ(text.str(), "float32[] on devices of " + words_of_members());
}

TEST_F(SomeProcesses, HaveOneLedgerEverywhere) {
  const auto said_of = [](const MeshRules& mesh_rules) {
    const Model model = nn::filter_shard(Model::init(Key(0)), mesh_rules);
    const Array x = device_put(batch_of(0), {"batch", none}, mesh_rules);
    nn::value_and_grad(loss_of)(model, x);  // the next step gathers in this order
    const CommLedger ledger;
    nn::value_and_grad(loss_of)(model, x);
    std::vector<std::string> lines;
    for (const CommRecord& r : ledger.records())
      lines.push_back(fmt::format("{} {} {}{}", r.kind, r.mesh_axes, r.bytes, r.backward ? " back" : ""));
    std::sort(lines.begin(), lines.end());  // between processes, prefetch changes the order
    return lines;
  };
  for (const Rules& table : rules)
    EXPECT_EQ(said_of(MeshRules(mesh_of_members(), table)),
              said_of(MeshRules(make_mesh(grid(), {.abstract = true}), table)));
}

// Pipeline stages on such a mesh.
TEST_F(SomeProcesses, HavePipelines) {
  const MeshRules mesh_rules(make_mesh({{"pipe", 2}, {"data", process_count() / 2}}, {.devices = devices_of_members()}),
                             {{"layers", "pipe"}, {"batch", "data"}, {"embed", replicated}, {"hidden", replicated}});
  const Model model = nn::filter_shard(Model::init(Key(0)), mesh_rules);
  const Array x = device_put(batch_of(0), {"batch", none}, mesh_rules);
  const auto [loss, gradients] = nn::pipeline(loss_of, {.num_micro_batches = 4})(model, x);
  if (is_member()) {
    EXPECT_NEAR(loss.item<double>(), loss_of(Model::init(Key(0)), batch_of(0)).item<double>(), 1e-5);
  }
}

TEST_F(SomeProcesses, AreGivenRowsAndShards) {
  const Mesh mesh = mesh_of_members();
  const NamedSharding sharding(mesh, P{"data"});
  const int64_t members = mesh.process_count();
  const Array mine = full({2, 8}, process_index());
  const Array rows = make_array_from_process_local_data(sharding, mine);
  EXPECT_EQ(rows.shape(), (Shape{2 * members, 8}));
  const Array made = make_array_from_callback({2 * members, 8}, sharding, [&](const IndexRanges& block) {
    return full({block[0].second - block[0].first, 8}, 1.0);
  });
  const Array shards = make_array_from_shards({2 * members, 8}, sharding, {mine, mine});
  const Array sums = gather(sum(rows) + sum(made) + sum(shards));
  if (!is_member()) return;
  double expected = 0;
  for (int p = first_member(); p < process_count(); ++p) expected += 16.0 * (2 * p + 1);
  EXPECT_EQ(sums.item<double>(), expected);
}

// Arrays cannot move to a mesh with other processes; every process gets the same error.
TEST_F(SomeProcesses, RefuseArraysOfOtherMeshes) {
  const Mesh whole = make_mesh({{"a", 2 * process_count()}}), mesh = mesh_of_members();
  const Array x = device_put(batch_of(0), NamedSharding(whole, P{}));
  expect_error(ErrorKind::device_mismatch,
               fmt::format("[device_put] float32[16,8] is on the mesh ({}) of {}, the target is the mesh ({}) of {}. "
                           "Read the value",
                           whole.to_string(), process_count() == 2 ? "processes 0 and 1" : "processes 0 to 3",
                           mesh.to_string(), words_of_members()),
               [&] { device_put(x, NamedSharding(mesh, P{})); });
  expect_error(ErrorKind::device_mismatch,
               "[make_mesh] process 0 has 2 of the mesh's 3 devices, expected the same number of each of the 2 "
               "processes that have any. Name other devices.",
               [] { make_mesh({{"a", 3}}, {.devices = {0, 1, 2}}); });
}

// Clipping works on processes without values. There grad_norm() throws an error that names the processes with values.
TEST_F(SomeProcesses, ReportNormsWhereTheValuesAre) {
  const MeshRules mesh_rules(mesh_of_members(), rules[0]);
  Model model = nn::filter_shard(Model::init(Key(0)), mesh_rules);
  auto optimizer =
      optim::Optimizer(model, optim::chain(optim::clip_by_global_norm(0.5), optim::scale_by_learning_rate(0.125)));
  const Array x = device_put(batch_of(0), {"batch", none}, mesh_rules);
  optimizer.update(model, nn::value_and_grad(loss_of)(model, x).second);
  EXPECT_EQ(optimizer.learning_rate(), 0.125);
  const auto folder = std::filesystem::temp_directory_path() / ("tessera_norms_" + std::to_string(::getppid()));
  nn::save(folder, 1, nn::named_state("model", model, "optimizer", optimizer));
  if (is_member()) {
    EXPECT_GT(*optimizer.grad_norm(), 0);
  } else {
    expect_error(ErrorKind::invalid_argument,
                 fmt::format("[grad_norm] the model is on the mesh ({}), whose devices are those of {}. Reading does "
                             "not communicate: read it there.",
                             mesh_rules.mesh().to_string(), words_of_members()),
                 [&] { optimizer.grad_norm(); });
  }
  nn::restore(folder, nn::named_state("model", model, "optimizer", optimizer));
  tessera::detail::Votes("test", "shared folder").all(true);
  if (process_index() == 0) std::filesystem::remove_all(folder);
}

// A process without the gradients' values would count an update that the others skip.
TEST_F(SomeProcesses, AloneDecideWhetherAnUpdateIsFinite) {
  const MeshRules mesh_rules(mesh_of_members(), rules[0]);
  Model model = nn::filter_shard(Model::init(Key(0)), mesh_rules);
  auto optimizer = optim::Optimizer(model, optim::apply_if_finite(optim::adam({.learning_rate = 0.125}), 3));
  const Array x = device_put(batch_of(0), {"batch", none}, mesh_rules);
  const Model gradients = nn::value_and_grad(loss_of)(model, x / 0.0).second;
  const auto update = [&] { optimizer.update(model, gradients); };
  if (is_member()) {
    update();
    EXPECT_EQ(optimizer.state().total_notfinite, 1);
  } else {
    expect_error(ErrorKind::invalid_argument,
                 fmt::format("[apply_if_finite] the model is on the mesh ({}), whose devices are those of {}.",
                             mesh_rules.mesh().to_string(), words_of_members()),
                 update);
    EXPECT_EQ(optimizer.count(), 0);
  }
}

// The same devices in another order and in another grid.
TEST_F(SomeProcesses, MoveBetweenMeshesOfTheSameDevices) {
  std::vector<int> turned = devices_of_members();
  std::reverse(turned.begin(), turned.end());
  const Mesh from = mesh_of_members(), to = make_mesh({{"c", process_count()}}, {.devices = turned});
  const Array x = device_put(batch_of(0), NamedSharding(from, P{"data", "model"}));
  const Array moved = gather(device_put(x, NamedSharding(to, P{none, "c"})));
  if (is_member()) {
    EXPECT_TRUE(at::equal(to_tensor(moved), to_tensor(batch_of(0))));
  }
}

std::string read_all(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::ostringstream all;
  for (const auto& file : files) all << file.filename() << std::ifstream(file, std::ios::binary).rdbuf();
  return all.str();
}

// The files equal those of one device, and every mesh can restore them.
TEST_F(SomeProcesses, AreSavedAndRestored) {
  const auto folder = std::filesystem::temp_directory_path() / ("tessera_some_" + std::to_string(::getppid()));
  Model plain = Model::init(Key(0));
  nn::save(folder / "plain", 1, nn::named_state("model", plain));
  for (size_t i = 0; i < rules.size(); ++i) {
    const auto there = folder / std::to_string(i);
    const MeshRules mesh_rules(mesh_of_members(), rules[i]);
    Model placed = nn::filter_shard(plain, mesh_rules);
    nn::save(there, 1, nn::named_state("model", placed));
    EXPECT_EQ(read_all(there), read_all(folder / "plain"));
    Model restored = nn::filter_shard(Model::init(Key(7)), mesh_rules);
    nn::restore(there, nn::named_state("model", restored));
    const Array loss = gather(loss_of(restored, device_put(batch_of(0), {"batch", none}, mesh_rules)));
    const double expected = loss_of(plain, batch_of(0)).item<double>();
    if (is_member()) {
      EXPECT_NEAR(loss.item<double>(), expected, 1e-5);
    }
    Model everywhere = Model::init(Key(7));
    const MeshRules wide(make_mesh({{"data", process_count()}, {"model", 2}}), rules[i]);
    nn::restore(there, nn::named_state("model", everywhere), {.mesh_rules = wide});
    const Array there_too = gather(loss_of(everywhere, device_put(batch_of(0), {"batch", none}, wide)));
    EXPECT_NEAR(there_too.item<double>(), expected, 1e-5);
  }
  tessera::detail::Votes("test", "shared folder").all(true);
  if (process_index() == 0) std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tessera::some_processes_test
