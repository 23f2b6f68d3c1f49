// Failed allocations in a placement, forward, backward and an update: the message, its forecasts, and what follows.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "nn/layers/linear.h"
#include "nn/layers/module_scope.h"
#include "nn/placement.h"
#include "nn/transformations.h"
#include "nn/tree.h"
#include "optim/optimizer.h"
#include "sharding/accounting/forecast.h"
#include "sharding/base/table.h"
#include "sharding/operations.h"
#include "sharding/random.h"
#include "sharding/redistribution/device_put.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/limited_memory.h"

namespace tessera::out_of_memory_test {
namespace {

using detail::with_commas;
using tessera::testing::error_of;
using tessera::testing::Failure;
using tessera::testing::LimitedMemory;

struct Block {
  nn::Linear up, down;
  Array operator()(const Array& x) const {
    const nn::ModuleScope scope(*this);
    return x + down(gelu(up(x)));
  }
};

struct Model {
  std::vector<Block> layers;

  static Model init(int64_t embed, int64_t hidden, int layers = 4) {
    Model model;
    for (const Key& key : split(Key(0), layers)) {
      const auto [up, down] = split<2>(key);
      model.layers.push_back({nn::Linear::init(up, {"embed", embed}, {"hidden", hidden}),
                              nn::Linear::init(down, {"hidden", hidden}, {"embed", embed})});
    }
    return model;
  }
};

Array loss_of(const Model& model, const Array& x) {
  Array h = x;
  for (const Block& block : model.layers) h = block(h);
  return mean(square(h));
}

Array loss_with_remat(const Model& model, const Array& x) {
  Array h = x;
  for (const Block& block : model.layers) h = nn::remat(block)(h);
  return mean(square(h));
}

const Rules data_parallel{{"batch", "data"}, {"embed", replicated}, {"hidden", replicated}};

// Each device has its own memory, as the forecasts assume.
Mesh mesh_of(int devices) { return make_mesh({{"data", devices}}, {.private_replicas = true}); }

struct Program {
  MeshRules rules;
  Model model;
  Array x;

  Program(int devices, int64_t embed, int64_t hidden, int64_t rows, int layers = 4)
      : rules(mesh_of(devices), data_parallel),
        model(nn::filter_shard(Model::init(embed, hidden, layers), rules)),
        x(device_put(normal(Key(1), {rows * devices, embed}), {"batch", none}, rules)) {}
};

template <class Run>
int64_t peak_of(LimitedMemory& memory, const Run& run) {
  memory.count();
  run();
  return memory.peak();
}

// Returns the forecast bytes of this change in the message; 0 if the message does not contain it.
int64_t forecast_in(const std::string& message, const std::string& change) {
  const size_t at = message.find(change);
  if (at == std::string::npos) return 0;
  std::string digits;
  for (const char c : message.substr(at + change.size(), message.find('\n', at) - at - change.size()))
    if (c >= '0' && c <= '9') digits += c;
  return digits.empty() ? 0 : std::stoll(digits);
}

// LimitedMemory is the CPU's.
class OutOfMemoryOnCpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (make_mesh({}).device() != "cpu") GTEST_SKIP() << "the arrays are on another device";
  }
};
class OutOfMemory : public OutOfMemoryOnCpu, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Devices, OutOfMemory, ::testing::Values(1, 2, 8));

// Lets each allocation of a step fail. Nothing is lost: the step that follows gives the same bits.
TEST_P(OutOfMemory, AStepCanBeRepeated) {
  LimitedMemory memory;
  const Program p(GetParam(), 16, 32, 4, 2);
  const Model start = p.model;
  const optim::Optimizer fresh(start, optim::adamw({.learning_rate = 0.1}));
  const auto loss = [&memory](const Model& model, const Array& x) {  // captures: no forecast is made
    return memory.allocated() >= 0 ? loss_of(model, x) : Array();
  };
  const auto step = [&](Model& model, auto& optimizer) {
    optimizer.update(model, nn::value_and_grad(loss)(model, p.x).second);
  };
  Model expected = start;
  auto expected_optimizer = fresh;
  step(expected, expected_optimizer);  // fills caches
  expected = start, expected_optimizer = fresh;
  memory.count();
  step(expected, expected_optimizer);
  const int64_t all = memory.allocated();
  int64_t failed = 0;
  for (int64_t refused = 1; refused <= all; ++refused) {
    Model model = start;
    auto optimizer = fresh;
    memory.count(refused);
    try {
      step(model, optimizer);
    } catch (const Error& error) {
      ++failed;
      EXPECT_EQ(error.kind(), ErrorKind::out_of_memory) << error.what();
      EXPECT_NE(std::string(error.what()).find("asked for at out_of_memory_test.cpp:"), std::string::npos)
          << error.what();
      EXPECT_EQ(nn::tree_difference(model, start), "") << refused;
      EXPECT_EQ(optimizer.count(), 0);
      memory.count();
      step(model, optimizer);
    }
    EXPECT_EQ(nn::tree_difference(model, expected), "") << refused;
    EXPECT_EQ(nn::tree_difference(optimizer.state(), expected_optimizer.state()), "") << refused;
  }
  EXPECT_EQ(failed, all);
}

// Each change of the message fits under the limit at which the call failed, with the forecast bytes.
TEST_P(OutOfMemory, ChangesFit) {
  LimitedMemory memory;
  const int devices = GetParam();
  const Program p(devices, 32, 128, 256);
  const auto run = [&](auto loss) { nn::value_and_grad(loss)(p.model, p.x); };
  run(loss_of);
  const int64_t before = LimitedMemory::live, peak = peak_of(memory, [&] { run(loss_of); });
  const int64_t limit = before + (peak - before) * 8 / 10;
  memory.limit(limit);
  const std::string message = error_of(ErrorKind::out_of_memory, [&] { run(loss_of); });
  SCOPED_TRACE(message);
  for (const std::string& words :
       {std::string("] layers."), std::string("asked for at out_of_memory_test.cpp:"),
        "Model: " + with_commas(nn::placement_table(p.model).bytes_per_device()) + " bytes on each device",
        std::string("layers.{0..3}"), std::string("layers.0.up.kernel"), std::string("Changes that fit")})
    EXPECT_NE(message.find(words), std::string::npos) << words;
  const auto expect_fit = [&](const std::string& change, const auto& changed) {
    const int64_t forecast = forecast_in(message, change) * devices;
    ASSERT_GT(forecast, 0) << change;
    EXPECT_LE(forecast, limit);
    const int64_t measured = peak_of(memory, changed);
    EXPECT_NEAR(static_cast<double>(measured) / static_cast<double>(forecast), 1, 0.1) << change;
  };
  expect_fit("nn::accumulate_gradients(loss, 2)", [&] { nn::accumulate_gradients(loss_of, 2)(p.model, p.x); });
  expect_fit("x = nn::remat(layers[i])(x) for each element of layers", [&] { run(loss_with_remat); });
  EXPECT_THROW(run(loss_of), Error);
  memory.limit();
  run(loss_of);
}

// With large parameters, sharding them fits. The forecast is Forecast's, which has more gathered weights than virtual
// devices: it prefetches as processes do.
TEST_F(OutOfMemoryOnCpu, ShardingFits) {
  LimitedMemory memory;
  constexpr int devices = 8;
  const Program p(devices, 64, 512, 2);
  const auto run = [&](const Model& model) { nn::value_and_grad(loss_of)(model, p.x); };
  run(p.model);
  const int64_t peak = peak_of(memory, [&] { run(p.model); });
  memory.limit(peak - 1);
  const std::string message = error_of(ErrorKind::out_of_memory, [&] { run(p.model); });
  memory.limit();
  SCOPED_TRACE(message);
  const auto rules_on = [](const Mesh& mesh) { return nn::fsdp(mesh, "data", {.rules = data_parallel}); };
  const Model fully = nn::filter_shard(p.model, rules_on(p.rules.mesh()));
  run(fully);
  const int64_t forecast = forecast_in(message, "nn::fsdp(mesh, \"data\", {.rules = your rules})");
  const int64_t replicated = nn::placement_table(p.model).bytes_per_device() * devices;  // p.model is still there
  EXPECT_LE(peak_of(memory, [&] { run(fully); }) - replicated, forecast * devices);
  EXPECT_LT(forecast * devices, peak);
  const Mesh abstract = make_mesh({{"data", devices}}, {.abstract = true});
  const auto peak_by_forecast = [&](const MeshRules& rules, const GradientOptions& options) {
    int64_t bytes = 0;
    for (int step = 0; step < 2; ++step) {  // the second one knows the order of gathers
      const Forecast measured;
      const Model model = nn::filter_shard(Model::init(64, 512), rules);
      nn::value_and_grad(loss_of, options)(model, device_put(zeros(p.x.shape()), {"batch", none}, rules));
      bytes = measured.peak_bytes();
    }
    return bytes;
  };
  EXPECT_EQ(forecast, peak_by_forecast(rules_on(abstract), {}));
  // A change is listed if it takes less.
  const std::string zero =
      "{.shard_gradients_over = {\"data\"}}, with {.shard_state_over = {\"data\"}} of the Optimizer";
  const MeshRules rules{abstract, data_parallel};
  const int64_t with_zero = peak_by_forecast(rules, {.shard_gradients_over = {"data"}});
  EXPECT_EQ(forecast_in(message, zero), with_zero < peak_by_forecast(rules, {}) ? with_zero : 0);
}

TEST_F(OutOfMemoryOnCpu, StateIsShardedOverTheDataAxis) {
  LimitedMemory memory;
  const Program p(8, 64, 512, 2);
  Model model = p.model;
  const Model grads = nn::value_and_grad(loss_of)(model, p.x).second;
  const auto adam = optim::adam({.learning_rate = 0.1});
  optim::Optimizer optimizer(model, adam);
  optimizer.update(model, grads);
  const Model before = model;
  memory.limit(LimitedMemory::live);
  const std::string message = error_of(ErrorKind::out_of_memory, [&] { optimizer.update(model, grads); });
  memory.limit();
  SCOPED_TRACE(message);
  EXPECT_EQ(nn::tree_difference(model, before), "");
  optim::Optimizer sharded(model, adam, {.shard_state_over = {"data"}});
  sharded.update(model, grads);
  for (const std::string& words :
       {std::string("[Optimizer.update] "), std::string("Optimizer state: "), std::string("mu.layers.0.up.kernel"),
        "With {.shard_state_over = {\"data\"}} the state takes " +
            with_commas(nn::placement_table(nn::leaves(sharded.state())).bytes_per_device()) + " bytes"})
    EXPECT_NE(message.find(words), std::string::npos) << words;
}

TEST_P(OutOfMemory, APlacementNamesItsLargestArrays) {
  LimitedMemory memory;
  const MeshRules rules(mesh_of(GetParam()), data_parallel);
  const Model lazy = Model::init(64, 512);
  const int64_t bytes = nn::placement_table(lazy, rules).bytes_per_device() * GetParam(), before = LimitedMemory::live;
  memory.limit(before + bytes * 3 / 4);
  const std::string message = error_of(ErrorKind::out_of_memory, [&] { (void)nn::filter_shard(lazy, rules); });
  SCOPED_TRACE(message);
  for (const std::string& words : {std::string("[filter_shard] layers."), std::string(": no memory to place float32["),
                                   "These rules: " + with_commas(bytes / GetParam()) + " bytes on each device"})
    EXPECT_NE(message.find(words), std::string::npos) << words;
  EXPECT_EQ(LimitedMemory::live, before);
  if (GetParam() == 1) return;
  const MeshRules fully = nn::fsdp(rules.mesh(), "data", {.rules = data_parallel});
  const Model placed = nn::filter_shard(lazy, fully);  // fits under the same limit
  EXPECT_NE(message.find("With nn::fsdp(mesh, \"data\", {.rules = your rules}): " +
                         with_commas(nn::placement_table(placed).bytes_per_device()) + " bytes on each device"),
            std::string::npos);
  memory.limit();
  EXPECT_EQ(nn::placement_table(nn::filter_shard(lazy, rules)).bytes_per_device(), bytes / GetParam());
}

TEST_P(OutOfMemory, AStateNamesTheLargestArraysOfItsModel) {
  LimitedMemory memory;
  const Model model = nn::filter_shard(Model::init(64, 512), MeshRules(mesh_of(GetParam()), data_parallel));
  const int64_t before = LimitedMemory::live;
  memory.limit(before);
  const std::string message =
      error_of(ErrorKind::out_of_memory, [&] { (void)optim::Optimizer(model, optim::adamw({.learning_rate = 1e-3})); });
  SCOPED_TRACE(message);
  for (const std::string& words : {std::string("[Optimizer] "), std::string("no memory"), std::string("Model: "),
                                   std::string("layers.0.up.kernel")})
    EXPECT_NE(message.find(words), std::string::npos) << words;
  EXPECT_EQ(LimitedMemory::live, before);
  memory.limit();
  EXPECT_EQ(optim::Optimizer(model, optim::adamw({.learning_rate = 1e-3})).count(), 0);
}

TEST_F(OutOfMemoryOnCpu, OperationsHaveBytesAndLine) {
  const Array a = ones({4, 8}) + 0, b = ones({8, 16}) + 0;
  const int line_of_matmul = __LINE__ + 4;
  const auto message = [&](Failure failure) {
    LimitedMemory memory(failure);
    memory.limit(0);
    return error_of(ErrorKind::out_of_memory, [&] { matmul(a, b); });
  };
  const std::string first = "[matmul] no memory given float32[4,8], float32[8,16]: ";
  const std::string line = fmt::format(" asked for at out_of_memory_test.cpp:{}. ", line_of_matmul);
  EXPECT_EQ(message(Failure::of_cpu).find(first + "256 bytes" + line), 0) << message(Failure::of_cpu);
  EXPECT_EQ(message(Failure::of_accelerator).find(first + "2,048 bytes" + line), 0);
  EXPECT_EQ(message(Failure::bad_alloc).find(first + "memory" + line), 0);
}

}  // namespace
}  // namespace tessera::out_of_memory_test
