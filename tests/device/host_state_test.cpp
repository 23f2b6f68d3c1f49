// Optimizer state in pinned host memory: the same bits as on the device, no wait of the host, and bounded memory.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "nn/checkpoint/checkpoint.h"
#include "nn/placement/table.h"
#include "nn/report/step_forecast.h"
#include "nn/transformations/cast.h"
#include "nn/transformations/graphed_step.h"
#include "sharding/array/host_memory.h"
#include "sharding/kernels/host_stream.h"
#include "tests/data/scratch_folder.h"
#include "tests/device/graphs.h"
#include "tests/device/pretended_device.h"
#include "tests/device/waits.h"
#include "tests/optim/support.h"

namespace tessera::host_state_test {
namespace {

using optim::OptimizerOptions;

const std::string there = testing::pretended_device();
const OptimizerOptions on_host{.state_memory_kind = optim::MemoryKind::pinned_host};
const auto adamw = optim::adamw({.learning_rate = 0.1, .eps = 0, .mask = optim::matrices_only});

// Some parameters have padding.
const std::vector<MeshAxis> grid{{"data", 2}, {"model", 3}};
MeshRules rules_on(const MeshOptions& options) {
  return {make_mesh(grid, options),
          {{"batch", "data"}, {"in", replicated}, {"out", "model", Uneven::pad}, {"vocab", "model"}}};
}
Toy toy_on(const MeshOptions& options) { return nn::filter_shard(Toy::init(3), rules_on(options)); }

using Values = std::map<std::string, std::vector<float>>;
template <class Tree>
Values values(const Tree& tree) {
  Values all;
  for (const nn::Leaf& leaf : nn::leaves(tree)) all[leaf.path] = host(*leaf.value);
  return all;
}

// Returns whether all arrays are in pinned memory.
template <class Tree>
bool is_on_host(const Tree& tree) {
  for (const nn::Leaf& leaf : nn::leaves(tree)) {
    const detail::Tensors* tensors = detail::host_tensors(*leaf.value);
    if (!tensors || !(*tensors)[0].is_pinned()) return false;
  }
  return true;
}

// Trains six steps. A copy of the optimizer is held during one of them, so that its memory must not be overwritten.
template <class Transform>
std::vector<Values> trained(const Transform& transform, const OptimizerOptions& options, DType dtype,
                            const std::string& device = there) {
  const MeshRules mesh_rules = rules_on({.device = device});
  Toy model = nn::filter_shard(nn::cast(Toy::init(3), dtype), mesh_rules);
  optim::Optimizer optimizer(model, transform, options);
  std::vector<Values> all;
  for (int i = 0; i < 6; ++i) {
    const Array x = device_put(astype(normal(Key(i), {8, 8}), dtype), {"batch", none}, mesh_rules);
    auto [loss, grads] = nn::value_and_grad(toy_loss)(model, x);
    const auto copy = i == 3 ? std::optional(optimizer) : std::nullopt;
    const testing::Waits waits;
    optimizer.update(model, std::move(grads));
    EXPECT_EQ(waits.all(), 0) << waits.text();
    EXPECT_EQ(is_on_host(optimizer), device == there && options.state_memory_kind == on_host.state_memory_kind);
    if (i == 4) all.push_back(values(optimizer));  // brings the state to the device until the next update
    if (copy) all.push_back(values(*copy));
  }
  all.push_back(values(model)), all.push_back(values(optimizer));
  return all;
}

template <class Transform>
void expect_same_bits(const Transform& transform) {
  for (const DType dtype : {float32, bfloat16})
    for (const std::vector<std::string>& axes : {std::vector<std::string>{}, {"data"}})
      for (const int64_t bytes : {int64_t{512}, int64_t{64} << 20}) {
        SCOPED_TRACE(fmt::format("{}, {} axes, buffers of {} bytes", name_of(dtype), axes.size(), bytes));
        const detail::ScopedValue buffers(detail::host_buffer_bytes(), bytes);
        OptimizerOptions options = on_host;
        options.shard_state_over = axes;
        EXPECT_EQ(trained(transform, options, dtype), trained(transform, {.shard_state_over = axes}, dtype));
      }
}

TEST(HostState, HasTheBitsOfStateOnTheDevice) {
  expect_same_bits(optim::chain(optim::clip_by_global_norm(0.5), adamw));
  expect_same_bits(optim::sgd({.learning_rate = 0.1, .momentum = 0.9}));
  expect_same_bits(optim::lion({.learning_rate = 0.01}));
  expect_same_bits(optim::nadam({.learning_rate = 0.01}));
}

TEST(HostState, HasNoEffectOnCpus) {
  EXPECT_EQ(trained(adamw, on_host, float32, "cpu"), trained(adamw, {}, float32, "cpu"));
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
  constexpr int64_t buffer = 16 << 10;  // bytes; the state has 512 KiB
  const detail::ScopedValue buffers(detail::host_buffer_bytes(), buffer);
  Array model = device_put(ones({256, 256}), NamedSharding(make_mesh({{"one", 1}}, {.device = there}), P{}));
  const Array grads = model * 0.5;
  optim::Optimizer optimizer(model, optim::adam({.learning_rate = 0.1}), on_host);
  const Allocated allocated;
  optimizer.update(model, grads);
  EXPECT_GE(allocated.bytes, 2 * buffer);
  EXPECT_LE(allocated.bytes, 2 * buffer + 1024);  // counts of updates
}

TEST(HostState, IsNotInAForecastOfTheDevice) {
  const auto forecast = [](const OptimizerOptions& options) {
    const auto step = [&] {
      Toy model = toy_on({.abstract = true});
      optim::Optimizer optimizer(model, adamw, options);
      optimizer.update(model, optim::gradients_for(model, 1));
      return nn::placement_table(nn::named("model", model, "optimizer", optimizer));
    };
    return nn::detail::forecast_step(make_mesh(grid, {.abstract = true}), step, {});
  };
  const detail::ScopedValue buffers(detail::host_buffer_bytes(), int64_t{512});
  const nn::StepForecast here = forecast({}), far = forecast(on_host);
  ASSERT_EQ(here.error + far.error, "");
  EXPECT_EQ(far.at_rest[1], std::pair(std::string("optimizer"), int64_t{0}));
  EXPECT_EQ(far.host_bytes, here.at_rest[1].second);
  EXPECT_LE(far.peak_bytes, here.peak_bytes - far.host_bytes + 4 * 512 + 64);
}

TEST(HostState, IsMarkedInThePlacementTable) {
  const Toy model = toy_on({.device = there});
  const optim::Optimizer optimizer(model, adamw, on_host);
  const nn::PlacementTable table = nn::placement_table(nn::named("model", model, "optimizer", optimizer));
  EXPECT_EQ(table.bytes_per_device(), table.bytes_per_device("model"));
  EXPECT_NE(table.to_text().find("P(None, 'model' padded) in pinned_host"), std::string::npos) << table;
  EXPECT_NE(table.to_text().find("pinned host memory: 944 bytes per device, not counted above"), std::string::npos)
      << table;
  EXPECT_EQ(nn::parse_placement_table(table.to_json()), table);
}

// A checkpoint has the values at its call, although later updates run before it is written. State on the device can be
// restored from it.
TEST(HostState, IsSavedAndRestored) {
  const data::ScratchFolder folder;
  const auto update = [](Toy& model, auto& optimizer) { optimizer.update(model, optim::gradients_for(model, 1)); };
  Toy model = toy_on({.device = there}), other = model;
  optim::Optimizer optimizer(model, adamw, on_host), on_device(other, adamw);
  update(model, optimizer);
  nn::Checkpointer checkpoints(folder.path("saved"));
  checkpoints.save(1, nn::named_state("model", model, "optimizer", optimizer));
  update(model, optimizer);
  checkpoints.wait();
  update(other, on_device);
  const Values saved = values(on_device);
  update(other, on_device);
  nn::restore(folder.path("saved"), nn::named_state("model", model, "optimizer", optimizer));
  EXPECT_TRUE(is_on_host(optimizer));
  nn::restore(folder.path("saved"), nn::named_state("model", other, "optimizer", on_device));
  EXPECT_EQ(values(optimizer), saved);
  EXPECT_EQ(values(on_device), saved);
}

TEST(HostState, IsRefusedWhereItCannotBe) {
  Array x = device_put(ones({4, 4}), NamedSharding(make_mesh({{"data", 2}}, {.device = there}), P{}));
  const auto expect_refused = [&](const auto& transform) {
    testing::expect_error(ErrorKind::invalid_argument,
                          "[Optimizer] state_memory_kind = pinned_host given for a transform that updates several "
                          "arrays together or contains others, expected a formula for each array or a chain of them",
                          [&] { optim::Optimizer(x, transform, on_host); });
  };
  expect_refused(optim::muon({.learning_rate = 0.1}));
  expect_refused(optim::accumulate(optim::sgd({.learning_rate = 0.1}), 2));
  const auto graphs = testing::has_graphs();
  optim::Optimizer optimizer(x, adamw, on_host);
  nn::GraphedStep step([](Array& m, decltype(optimizer)& o, const Array& grads) {
    o.update(m, grads);
    return m;
  });
  for (int i = 0; i < 2; ++i)
    testing::expect_error(ErrorKind::invalid_argument,
                          "[Optimizer.update] a state in host memory is updated inside a captured step",
                          [&] { step(x, optimizer, x + x); });
  EXPECT_EQ(host(x), std::vector<float>(16, 1));
}

}  // namespace
}  // namespace tessera::host_state_test
