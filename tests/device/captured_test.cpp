// A captured step on a device whose graphs are lists of its kernels: what it computes, what it refuses.
#include "nn/transformations/captured.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "nn/models/gpt2.h"
#include "nn/models/llama.h"
#include "nn/transformations/accumulate_gradients.h"
#include "nn/transformations/cast.h"
#include "sharding/array/waits.h"
#include "sharding/distributed/graph.h"
#include "tests/device/pretended_device.h"
#include "tests/optim/support.h"

namespace tessera {
namespace {

using testing::expect_error;

const std::string there = testing::pretended_device();

// Repeats the kernels, in their order, on the memory that they had. As with CUDA a
// recording must not read the device, nor be handed memory of the host.
class KernelList : public detail::Graph, testing::DeviceWatcher {
 public:
  void record(const std::function<void()>& f) override {
    testing::watch_device(this);
    try {
      f();
    } catch (...) {
      testing::watch_device(nullptr);
      throw;
    }
    testing::watch_device(nullptr);
  }
  void replay() override {
    for (const auto& kernel : kernels_) kernel();
  }

 private:
  void kernel(const std::string& name, std::function<void()> again) override {
    EXPECT_EQ(name.find("between the memories"), std::string::npos)
        << name << " in " << detail::latest_operation().name << " at " << detail::latest_line();
    kernels_.push_back(std::move(again));
  }
  void allocation(const at::Tensor& made) override { pool_.push_back(made.storage()); }

  std::vector<std::function<void()>> kernels_;
  std::vector<c10::Storage> pool_;  // all that was made meanwhile
};

class DeviceGraphs : public ::testing::Test {
 protected:
  DeviceGraphs()
      : graphs_(detail::graphs_of(c10::kPrivateUse1),
                [](c10::DeviceIndex) -> std::unique_ptr<detail::Graph> { return std::make_unique<KernelList>(); }) {}

 private:
  detail::ScopedValue<detail::MakeGraph> graphs_;
};

struct Options {
  bool remat = false, half = false;
  int micro_batches = 1;
};

nn::DecoderConfig llama() { return {.vocab = 32, .embed = 16, .layers = 2, .heads = 4, .head_dim = 4, .mlp = 24}; }

Array tokens(uint32_t seed, const Layout& layout, int64_t rows = 16) {
  const Array host = array<int32_t>(randint(Key(seed), {rows, 8}, 0, 32).to_host<int32_t>(), {rows, 8});
  return device_put(host, {"batch", none}, layout);
}

// The losses of six steps, captured or not.
template <class Model>
std::vector<float> losses(const Mesh& mesh, const nn::DecoderConfig& config, const Options& options, bool captured) {
  const Layout layout(mesh, nn::decoder_rules(mesh));
  Model model = nn::filter_shard(Model::init(Key(1), config), layout);
  model.remat = options.remat;
  optim::Optimizer optimizer(model,
                             optim::chain(optim::clip_by_global_norm(0.5), optim::adamw({.learning_rate = 0.02})));
  const auto loss_of = [half = options.half](const Model& given, const Array& ids, const Array& labels,
                                             const Key& key) {
    const Model m = half ? nn::cast(given, bfloat16) : given;
    const Array hidden = dropout(key, m.hidden(ids), 0.1);
    return mean(cross_entropy(astype(m.logits(hidden), float32), labels));
  };
  const auto gradient = nn::accumulate_gradients(loss_of, options.micro_batches, {.borrow_gathers = false});
  nn::Captured step(gradient);
  std::vector<float> result;
  for (uint32_t i = 0; i < 6; ++i) {
    const Array ids = tokens(i, layout), labels = tokens(i + 100, layout);
    auto [loss, grads] = captured ? step(model, ids, labels, Key(7)) : gradient(model, ids, labels, Key(7));
    optimizer.update(model, grads);
    result.push_back(loss.template item<float>());
  }
  EXPECT_EQ(step.recordings(), captured ? 1 : 0);
  return result;
}

TEST_F(DeviceGraphs, ACapturedStepHasTheBitsOfTheStep) {
  nn::DecoderConfig gpt = llama();
  gpt.family = nn::DecoderFamily::gpt2, gpt.positions = 16;
  gpt.attention_bias = gpt.output_bias = gpt.mlp_bias = gpt.tied = true, gpt.activation = {nn::Activation::gelu};
  for (const auto& axes :
       std::vector<std::vector<MeshAxis>>{{{"data", 1}}, {{"data", 2}}, {{"data", 2}, {"model", 2}}, {{"fsdp", 4}}})
    for (const Options& o : {Options{}, Options{.remat = true, .half = true, .micro_batches = 2}}) {
      const Mesh mesh = make_mesh(axes, {.device = there});
      SCOPED_TRACE(fmt::format("on ({}), remat {}, bfloat16 {}", mesh.to_string(), o.remat, o.half));
      EXPECT_EQ(losses<nn::Gpt2>(mesh, gpt, o, true), losses<nn::Gpt2>(mesh, gpt, o, false));
      EXPECT_EQ(losses<nn::Llama>(mesh, llama(), o, true), losses<nn::Llama>(mesh, llama(), o, false));
    }
}

TEST_F(DeviceGraphs, AnotherShapeOrNumberIsRecordedAnew) {
  const Layout layout(make_mesh({{"data", 2}}, {.device = there}), {{"batch", "data"}});
  nn::Captured step([](const Array& x, float factor) { return x * factor; });
  const auto result = [&](int64_t rows, float factor, float value) {
    const Array x = device_put(full({rows}, value), {"batch"}, layout);
    return step(x, factor).to_host<float>()[0];
  };
  for (int i = 0; i < 4; ++i) EXPECT_EQ(result(4, 2, 1 + i), 2 * (1 + i));
  EXPECT_EQ(step.recordings(), 1);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(result(6, 2, 1 + i), 2 * (1 + i));
  EXPECT_EQ(step.recordings(), 2);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(result(4, 3, 1 + i), 3 * (1 + i));
  EXPECT_EQ(step.recordings(), 3);
  EXPECT_EQ(result(4, 2, 7), 14);
  EXPECT_EQ(step.recordings(), 3);
}

TEST_F(DeviceGraphs, AModelThatIsUpdatedInPlaceIsReadThere) {
  const Layout layout(make_mesh({{"data", 2}}, {.device = there}), {{"batch", "data"}});
  Array model = device_put(full({3}, 4), {none}, layout);
  optim::Optimizer optimizer(model, optim::sgd({.learning_rate = 0.25}));
  const auto loss_fn = [](const Array& w, const Array& x) { return sum(square(w)) + mean(x); };
  const Array batch = device_put(full({4}, 1), {"batch"}, layout);
  nn::Captured step(nn::value_and_grad(loss_fn));
  for (int i = 0; i < 4; ++i) {
    auto [loss, grads] = step(model, batch);
    optimizer.update(model, grads);
    EXPECT_EQ(loss.item<float>(), 3 * 16 * std::pow(0.25, i) + 1);
  }
  EXPECT_EQ(step.recordings(), 1);
}

TEST_F(DeviceGraphs, ResultsAreTheCallersOwn) {
  const Layout layout(make_mesh({{"data", 2}}, {.device = there}), {{"batch", "data"}});
  nn::Captured step([](const Array& x) { return x + x; });
  std::vector<Array> results;
  for (int i = 0; i < 4; ++i) results.push_back(step(device_put(full({4}, i), {"batch"}, layout)));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(results[i].to_host<float>()[3], 2 * i);
}

TEST_F(DeviceGraphs, AnIndexOutsideIsSaidOfAReplayToo) {
  const Mesh mesh = make_mesh({{"data", 1}}, {.device = there});
  const auto placed = [&](const Array& x) { return device_put(x, NamedSharding(mesh, P{})); };
  const Array table = placed(normal(Key(1), {4, 3}));
  nn::Captured step([](const Array& t, const Array& ids) { return sum(take(t, ids, 0)); });
  for (int i = 0; i < 3; ++i) step(table, placed(array<int32_t>({0, i}, {2}))).item<float>();
  const Array late = step(table, placed(array<int32_t>({0, 9}, {2})));
  expect_error(ErrorKind::bad_argument, "[take] indices from 0 to 9 given", [&] { late.item<float>(); });
  EXPECT_EQ(step.recordings(), 1);
}

TEST_F(DeviceGraphs, WhatTheHostDoesIsRefused) {
  for (const char* device : {"cpu", there.c_str()}) {
    const Layout layout(make_mesh({{"data", 2}}, {.device = device}), {{"batch", "data"}});
    Array model = device_put(full({4}, 1), {"batch"}, layout);
    nn::Captured reads([](const Array& x) { return x * sum(x).item<float>(); });
    expect_error(ErrorKind::bad_argument, "[item] a value is read inside a captured step", [&] { reads(model); });
    optim::Optimizer optimizer(model, optim::sgd({.learning_rate = 1.0}));
    nn::Captured updates([&](const Array& grads) {
      optimizer.update(model, grads);
      return model;
    });
    expect_error(ErrorKind::bad_argument, "[Optimizer.update] a model is updated inside a captured step",
                 [&] { updates(model + model); });
    EXPECT_EQ(model.to_host<float>()[0], 1);
    nn::Captured step([](const Array& x) { return x + x; });
    for (int i = 0; i < 3; ++i) EXPECT_EQ(step(model).to_host<float>()[0], 2);
    EXPECT_EQ(step.recordings(), device == there ? 1 : 0);
  }
}

}  // namespace
}  // namespace tessera
