// Optimizer state in pinned host memory: the same bits as on the device, no wait of the host, and bounded memory.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "nn/checkpoint/checkpoint.h"
#include "nn/placement/table.h"
#include "nn/report/step_forecast.h"
#include "nn/transformations/cast.h"
#include "nn/transformations/graphed_step.h"
#include "optim/optimizer/contrib.h"
#include "sharding/array/array_impl.h"
#include "sharding/array/host_memory.h"
#include "sharding/files/file.h"
#include "sharding/kernels/host_stream.h"
#include "tests/data/scratch_folder.h"
#include "tests/device/graphs.h"
#include "tests/device/pretended_device.h"
#include "tests/device/waits.h"
#include "tests/optim/support.h"

namespace tessera::host_state_test {
namespace {

using optim::MemoryKind, optim::OptimizerOptions;
using testing::expect_error;

const std::string there = testing::pretended_device();
const OptimizerOptions on_host{.state_memory_kind = MemoryKind::pinned_host};

MeshRules rules_on(const MeshOptions& options) {
  return {make_mesh({{"data", 2}, {"model", 2}}, options),
          {{"batch", "data"}, {"in", replicated}, {"out", "model"}, {"vocab", "model"}}};
}

template <class Tree>
std::map<std::string, std::vector<float>> values(const Tree& tree) {
  std::map<std::string, std::vector<float>> all;
  for (const nn::Leaf& leaf : nn::leaves(tree))
    if (!leaf.value->is_absent()) all[leaf.path] = host(*leaf.value);
  return all;
}

bool is_on_host(const Array& x) {
  const detail::Tensors* tensors = detail::host_tensors(x);
  return tensors && std::all_of(tensors->begin(), tensors->end(), [](const at::Tensor& t) { return t.is_pinned(); });
}

// Expects the arrays of the state in pinned memory, and returns their number.
template <class Optimizer>
int arrays_on_host(const Optimizer& optimizer) {
  int count = 0;
  for (const nn::Leaf& leaf : nn::leaves(optimizer)) {
    if (leaf.value->is_absent()) continue;
    EXPECT_TRUE(is_on_host(*leaf.value)) << leaf.path;
    ++count;
  }
  return count;
}

// Trains six steps. A copy of the optimizer is held during one of them, so that its memory must not be overwritten.
template <class Transform>
auto trained(const Transform& transform, const OptimizerOptions& options, DType dtype, const std::string& device) {
  const MeshRules mesh_rules = rules_on({.device = device});
  Toy model = nn::filter_shard(nn::cast(Toy::init(3), dtype), mesh_rules);
  optim::Optimizer optimizer(model, transform, options);
  std::vector<std::map<std::string, std::vector<float>>> all;
  for (int i = 0; i < 6; ++i) {
    const Array x = device_put(astype(normal(Key(i), {8, 8}), dtype), {"batch", none}, mesh_rules);
    auto [loss, grads] = nn::value_and_grad(toy_loss)(model, x);
    const auto copy = i == 3 ? std::optional(optimizer) : std::nullopt;
    testing::Waits waits;
    optimizer.update(model, std::move(grads));
    EXPECT_EQ(waits.all(), 0) << waits.text();
    if (options.state_memory_kind == MemoryKind::pinned_host && device == there)
      EXPECT_GT(arrays_on_host(optimizer), 0);
    if (i == 4) all.push_back(values(optimizer));  // brings the state to the device until the next update
    if (copy) all.push_back(values(*copy));
  }
  all.push_back(values(model)), all.push_back(values(optimizer));
  return all;
}

template <class Transform>
void expect_same_bits(const Transform& transform, const std::string& name) {
  for (const DType dtype : {float32, bfloat16})
    for (const bool sharded : {false, true})
      for (const int64_t bytes : {int64_t{512}, int64_t{64} << 20}) {
        SCOPED_TRACE(fmt::format("{}, {}, sharded {}, buffers of {} bytes", name, name_of(dtype), sharded, bytes));
        const detail::ScopedValue buffers(detail::host_buffer_bytes(), bytes);
        OptimizerOptions options;
        if (sharded) options.shard_state_over = {"data"};
        const auto expected = trained(transform, options, dtype, there);
        options.state_memory_kind = MemoryKind::pinned_host;
        EXPECT_EQ(trained(transform, options, dtype, there), expected);
      }
}

TEST(HostState, HasTheBitsOfStateOnTheDevice) {
  using namespace optim;
  const Schedule falling = exponential_decay({.init_value = 0.1, .transition_steps = 1, .decay_rate = 0.5});
  expect_same_bits(chain(clip_by_global_norm(0.5), adamw({.learning_rate = falling, .mask = matrices_only})), "adamw");
  expect_same_bits(sgd({.learning_rate = 0.1, .momentum = 0.9}), "sgd");
  expect_same_bits(lion({.learning_rate = 0.01}), "lion");
  expect_same_bits(nadam({.learning_rate = 0.01}), "nadam");
}

TEST(HostState, HasNoEffectOnCpus) {
  const auto transform = optim::adamw({.learning_rate = 0.1});
  EXPECT_EQ(trained(transform, on_host, float32, "cpu"), trained(transform, {}, float32, "cpu"));
  Toy model = nn::filter_shard(Toy::init(3), rules_on({.device = "cpu"}));
  const optim::Optimizer optimizer(model, transform, on_host);
  EXPECT_EQ(nn::placement_table(optimizer), nn::placement_table(optim::Optimizer(model, transform)));
}

// Sums the bytes of all new tensors of the device.
struct Allocated : testing::DeviceWatcher {
  Allocated() { testing::watch_device(this); }
  ~Allocated() override { testing::watch_device(nullptr); }
  void kernel(const std::string&, std::function<void()>) override {}
  void allocation(const at::Tensor& made) override { bytes += static_cast<int64_t>(made.nbytes()); }
  int64_t bytes = 0;
};

TEST(HostState, TakesTwoBuffersOfTheDevice) {
  constexpr int64_t buffer = 16 << 10, state = 2 * 256 * 256 * 4;
  const detail::ScopedValue buffers(detail::host_buffer_bytes(), buffer);
  const auto placed = [](const Array& x) {
    return device_put(x, NamedSharding(make_mesh({{"one", 1}}, {.device = there}), P{}));
  };
  Array model = placed(ones({256, 256}));
  const Array grads = placed(full({256, 256}, 0.5));
  optim::Optimizer optimizer(model, optim::adam({.learning_rate = 0.1}), on_host);
  for (int i = 0; i < 3; ++i) {
    Allocated allocated;
    optimizer.update(model, grads);
    EXPECT_GE(allocated.bytes, 2 * buffer);
    EXPECT_LE(allocated.bytes, 2 * buffer + 1024);  // counts of updates
  }
  EXPECT_LT(2 * buffer + 1024, state);
  EXPECT_EQ(arrays_on_host(optimizer), 2);
}

TEST(HostState, IsNotInAForecastOfTheDevice) {
  const auto forecast = [](const OptimizerOptions& options) {
    const MeshRules mesh_rules = rules_on({.abstract = true});
    const auto step = [&] {
      Toy model = nn::filter_shard(Toy::init(3), mesh_rules);
      optim::Optimizer optimizer(model, optim::adamw({.learning_rate = 0.1}), options);
      Toy grads = optim::gradients_for(model, 1);
      optimizer.update(model, std::move(grads));
      return nn::placement_table(nn::named("model", model, "optimizer", optimizer));
    };
    return nn::detail::forecast_step(mesh_rules.mesh(), step, {.host_bytes_per_second = 1e3});
  };
  const detail::ScopedValue buffers(detail::host_buffer_bytes(), int64_t{512});
  const nn::StepForecast here = forecast({}), far = forecast(on_host);
  ASSERT_EQ(here.error + far.error, "");
  const int64_t state = here.at_rest[1].second;  // bytes of the optimizer
  EXPECT_EQ(far.at_rest[1], std::pair(std::string("optimizer"), int64_t{0}));
  EXPECT_EQ(far.host_bytes, state);
  EXPECT_EQ(here.host_bytes, 0);
  EXPECT_LE(far.peak_bytes, here.peak_bytes - state + 2 * 512 + 64);
  EXPECT_NEAR(far.compute_seconds - here.compute_seconds, static_cast<double>(state) / 1e3, 1e-6);
}

TEST(HostState, IsMarkedInThePlacementTable) {
  const Toy model = nn::filter_shard(Toy::init(3), rules_on({.device = there}));
  const optim::Optimizer optimizer(model, optim::adam({.learning_rate = 0.1}), on_host);
  const nn::PlacementTable table = nn::placement_table(nn::named("model", model, "optimizer", optimizer));
  EXPECT_EQ(table.bytes_per_device("optimizer"), 0);
  EXPECT_EQ(table.bytes_per_device(), table.bytes_per_device("model"));
  EXPECT_EQ(table.host_bytes_per_device(), 2 * table.bytes_per_device("model"));
  EXPECT_NE(table.to_text().find("P(None, 'model') in pinned_host"), std::string::npos) << table;
  EXPECT_NE(table.to_text().find("pinned host memory: 1,344 bytes per device, not counted above"), std::string::npos)
      << table;
  EXPECT_EQ(nn::parse_placement_table(table.to_json()), table);
}

// A checkpoint has the values at its call, although later updates run before it is written. Its files are the same.
TEST(HostState, IsSavedAndRestored) {
  const data::ScratchFolder folder;
  const MeshRules mesh_rules = rules_on({.device = there});
  const auto transform = optim::adamw({.learning_rate = 0.1});
  const auto update = [&](Toy& model, auto& optimizer) { optimizer.update(model, optim::gradients_for(model, 1)); };
  Toy model = nn::filter_shard(Toy::init(3), mesh_rules), plain = model;
  optim::Optimizer optimizer(model, transform, on_host), reference(plain, transform);
  update(model, optimizer), update(plain, reference);
  nn::Checkpointer checkpoints(folder.path("host"));
  checkpoints.save(1, nn::named_state("model", model, "optimizer", optimizer));
  nn::save(folder.path("device"), 1, nn::named_state("model", plain, "optimizer", reference));
  update(model, optimizer), update(plain, reference);
  EXPECT_GT(arrays_on_host(optimizer), 0);
  checkpoints.wait();
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder.path("device")))
    if (file.is_regular_file()) {
      const auto other = folder.path("host") / std::filesystem::relative(file.path(), folder.path("device"));
      EXPECT_EQ(read_text(other, "test"), read_text(file.path(), "test")) << other;
    }
  nn::restore(folder.path("host"), nn::named_state("model", model, "optimizer", optimizer));
  EXPECT_GT(arrays_on_host(optimizer), 0);
  update(model, optimizer);
  EXPECT_EQ(values(optimizer), values(reference));
  EXPECT_EQ(values(model), values(plain));
}

TEST(HostState, IsRefusedWhereItCannotBe) {
  const Toy model = nn::filter_shard(Toy::init(3), rules_on({.device = there}));
  const auto expect_refused = [&](const auto& transform) {
    expect_error(ErrorKind::invalid_argument,
                 "[Optimizer] state_memory_kind = pinned_host given for a transform that updates several arrays "
                 "together or contains others, expected a formula for each array or a chain of them",
                 [&] { optim::Optimizer(model, transform, on_host); });
  };
  expect_refused(optim::muon({.learning_rate = 0.1}));
  expect_refused(optim::accumulate(optim::sgd({.learning_rate = 0.1}), 2));
  expect_refused(optim::prodigy());
  const auto graphs = testing::has_graphs();
  Array x = device_put(ones({4}), NamedSharding(make_mesh({{"data", 2}}, {.device = there}), P{}));
  optim::Optimizer optimizer(x, optim::adam({.learning_rate = 0.1}), on_host);
  nn::GraphedStep step([](Array& m, decltype(optimizer)& o, const Array& grads) {
    o.update(m, grads);
    return m;
  });
  for (int i = 0; i < 2; ++i)
    expect_error(ErrorKind::invalid_argument,
                 "[Optimizer.update] a state in host memory is updated inside a captured step",
                 [&] { step(x, optimizer, x + x); });
  EXPECT_EQ(host(x), std::vector<float>(4, 1));
}

}  // namespace
}  // namespace tessera::host_state_test
