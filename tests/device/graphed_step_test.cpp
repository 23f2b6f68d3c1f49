// GraphedStep on a device with graphs: its results and its errors.
#include "nn/transformations/graphed_step.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>

#include "nn/models/causal_lm.h"
#include "nn/transformations/accumulate_gradients.h"
#include "nn/transformations/cast.h"
#include "nn/transformations/value_and_grad.h"
#include "nn/tree/tree_scalars.h"
#include "tests/device/graphs.h"
#include "tests/optim/support.h"

namespace tessera::captured_test {
namespace {

using testing::expect_error;

const std::string there = testing::device_with_graphs();

class DeviceGraphs : public ::testing::Test {
  const std::shared_ptr<void> graphs_ = testing::has_graphs();
};

struct Options {
  bool remat = false, half = false;
  int num_micro_batches = 1;
};

nn::DecoderConfig llama() {
  return {.vocab_size = 32,
          .hidden_size = 16,
          .num_hidden_layers = 2,
          .num_attention_heads = 4,
          .head_dim = 4,
          .intermediate_size = 24};
}

Array tokens(uint32_t seed, const MeshRules& mesh_rules, int64_t rows = 16) {
  const Array host = array<int32_t>(randint(Key(seed), {rows, 8}, 0, 32).to_host<int32_t>(), {rows, 8});
  return device_put(host, {"batch", none}, mesh_rules);
}

// Returns the losses of six steps, with or without a graph.
std::vector<float> losses(const Mesh& mesh, const nn::DecoderConfig& config, const Options& options, bool captured) {
  const MeshRules mesh_rules(mesh, nn::decoder_rules(mesh));
  nn::CausalLM model = nn::filter_shard(nn::CausalLM::init(Key(1), config), mesh_rules);
  model.remat = options.remat;
  optim::Optimizer optimizer(model,
                             optim::chain(optim::clip_by_global_norm(0.5), optim::adamw({.learning_rate = 0.02})));
  const auto loss_of = [half = options.half](const nn::CausalLM& given, const Array& ids, const Array& labels,
                                             const Key& key) {
    const nn::CausalLM m = half ? nn::cast(given, bfloat16) : given;
    const Array hidden = dropout(key, m.hidden(ids), 0.1);
    return mean(cross_entropy(astype(m.logits(hidden), float32), labels));
  };
  const auto gradient = nn::accumulate_gradients(loss_of, options.num_micro_batches);
  nn::GraphedStep step(gradient);
  std::vector<float> result;
  for (uint32_t i = 0; i < 6; ++i) {
    const Array ids = tokens(i, mesh_rules), labels = tokens(i + 100, mesh_rules);
    auto [loss, grads] = captured ? step(model, ids, labels, Key(7)) : gradient(model, ids, labels, Key(7));
    optimizer.update(model, grads);
    result.push_back(loss.template item<float>());
  }
  EXPECT_EQ(step.recordings(), captured ? 1 : 0);
  return result;
}

TEST_F(DeviceGraphs, ACapturedStepHasTheBitsOfTheStep) {
  nn::DecoderConfig gpt = nn::config_of_family("gpt2", llama());
  gpt.max_position_embeddings = 16;
  for (const auto& axes :
       std::vector<std::vector<MeshAxis>>{{{"data", 1}}, {{"data", 2}}, {{"data", 2}, {"model", 2}}, {{"fsdp", 4}}})
    for (const Options& o : {Options{}, Options{.remat = true, .half = true, .num_micro_batches = 2}}) {
      const Mesh mesh = make_mesh(axes, {.device = there});
      SCOPED_TRACE(fmt::format("on ({}), remat {}, bfloat16 {}", mesh.to_string(), o.remat, o.half));
      EXPECT_EQ(losses(mesh, gpt, o, true), losses(mesh, gpt, o, false));
      EXPECT_EQ(losses(mesh, llama(), o, true), losses(mesh, llama(), o, false));
    }
}

TEST_F(DeviceGraphs, AnotherShapeOrNumberIsRecordedAgain) {
  const MeshRules mesh_rules(make_mesh({{"data", 2}}, {.device = there}), {{"batch", "data"}});
  nn::GraphedStep step([](const Array& x, float factor) { return x * factor; });
  const auto result = [&](int64_t rows, float factor, float value) {
    const Array x = device_put(full({rows}, value), {"batch"}, mesh_rules);
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
  const MeshRules mesh_rules(make_mesh({{"data", 2}}, {.device = there}), {{"batch", "data"}});
  Array model = device_put(full({3}, 4), {none}, mesh_rules);
  optim::Optimizer optimizer(model, optim::sgd({.learning_rate = 0.25}));
  const auto loss_fn = [](const Array& w, const Array& x) { return sum(square(w)) + mean(x); };
  const Array batch = device_put(full({4}, 1), {"batch"}, mesh_rules);
  nn::GraphedStep step(nn::value_and_grad(loss_fn));
  for (int i = 0; i < 4; ++i) {
    auto [loss, grads] = step(model, batch);
    optimizer.update(model, grads);
    EXPECT_EQ(loss.item<float>(), 3 * 16 * std::pow(0.25, i) + 1);
  }
  EXPECT_EQ(step.recordings(), 1);
}

TEST_F(DeviceGraphs, ResultsAreTheCallersOwn) {
  const MeshRules mesh_rules(make_mesh({{"data", 2}}, {.device = there}), {{"batch", "data"}});
  nn::GraphedStep step([](const Array& x) { return x + x; });
  std::vector<Array> results;
  for (int i = 0; i < 4; ++i) results.push_back(step(device_put(full({4}, i), {"batch"}, mesh_rules)));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(results[i].to_host<float>()[3], 2 * i);
  const auto put = [&](const Array& x) { return device_put(x, NamedSharding(mesh_rules.mesh(), P{})); };
  nn::GraphedStep rows([](const Array& x, const Array& w, const Array& sizes) { return sum(ragged_dot(x, w, sizes)); });
  const Array x = put(ones({4, 2})), w = put(array<float>({1, 1, 3, 3}, {2, 2, 1}));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(rows(x, w, put(array<int32_t>({i, 3 - i}))).item<float>(), 18 - 4 * i);
  EXPECT_EQ(rows.recordings(), 1);
}

TEST_F(DeviceGraphs, AnIndexOutOfRangeInAReplayIsReported) {
  const Mesh mesh = make_mesh({{"data", 1}}, {.device = there});
  const auto placed = [&](const Array& x) { return device_put(x, NamedSharding(mesh, P{})); };
  const Array table = placed(normal(Key(1), {4, 3}));
  nn::GraphedStep step([](const Array& t, const Array& ids) { return sum(take(t, ids, 0)); });
  for (int i = 0; i < 3; ++i) step(table, placed(array<int32_t>({0, i}, {2}))).item<float>();
  const Array late = step(table, placed(array<int32_t>({0, 9}, {2})));
  expect_error(ErrorKind::invalid_argument, "[take] indices from 0 to 9 given", [&] { late.item<float>(); });
  EXPECT_EQ(step.recordings(), 1);
}

// ---- complete steps

const optim::Schedule falling = optim::exponential_decay({.init_value = 0.3, .transition_steps = 2, .decay_rate = 0.7});

// The complete result of a training, compared bit for bit.
struct Trained {
  std::vector<float> losses, arrays;
  std::vector<double> told;
  std::string numbers;
  friend bool operator==(const Trained&, const Trained&) = default;

  template <class Model, class Optimizer>
  void take(const Model& model, Optimizer& optimizer) {
    for (const nn::Leaf& leaf : nn::named("model", model, "optimizer", optimizer)) {
      if (leaf.value->is_absent()) continue;
      const std::vector<float> values = host(*leaf.value);
      arrays.insert(arrays.end(), values.begin(), values.end());
    }
    for (const nn::Scalar& scalar : nn::scalars(optimizer)) numbers += scalar.path + "=" + scalar.to_json() + " ";
  }
};

Trained whole_steps(const Mesh& mesh, const nn::DecoderConfig& config, const Options& options, bool captured) {
  const MeshRules mesh_rules(mesh, nn::decoder_rules(mesh));
  nn::CausalLM model = nn::filter_shard(nn::CausalLM::init(Key(1), config), mesh_rules);
  model.remat = options.remat;
  optim::Optimizer optimizer(
      model, optim::chain(optim::clip_by_global_norm(0.5),
                          optim::adamw({.learning_rate = falling, .weight_decay = 0.1, .mask = optim::matrices_only})));
  const auto loss_of = [half = options.half](const nn::CausalLM& given, const Array& ids, const Array& labels,
                                             const Key& key) {
    const nn::CausalLM m = half ? nn::cast(given, bfloat16) : given;
    const Array hidden = dropout(key, m.hidden(ids), 0.1);
    return mean(cross_entropy(astype(m.logits(hidden), float32), labels));
  };
  const auto gradient = nn::accumulate_gradients(loss_of, options.num_micro_batches);
  const auto train = [&](nn::CausalLM& m, decltype(optimizer)& o, const Array& ids, const Array& labels,
                         const Key& key) {
    auto [loss, grads] = gradient(m, ids, labels, key);
    o.update(m, std::move(grads));
    return loss;
  };
  nn::GraphedStep step(train);
  Trained result;
  for (uint32_t i = 0; i < 5; ++i) {
    const Array ids = tokens(i, mesh_rules), labels = tokens(i + 100, mesh_rules);
    const Array loss =
        captured ? step(model, optimizer, ids, labels, Key(7)) : train(model, optimizer, ids, labels, Key(7));
    result.losses.push_back(loss.item<float>());
    result.told.push_back(optimizer.learning_rate());
    result.told.push_back(optimizer.grad_norm().value());
    result.told.push_back(static_cast<double>(optimizer.count()));
  }
  result.take(model, optimizer);
  EXPECT_EQ(step.recordings(), captured ? 1 : 0);
  return result;
}

TEST_F(DeviceGraphs, AWholeStepHasTheBitsOfTheStep) {
  for (const auto& axes : std::vector<std::vector<MeshAxis>>{{{"data", 1}}, {{"fsdp", 4}}})
    for (const Options& o : {Options{}, Options{.remat = true, .half = true, .num_micro_batches = 2}}) {
      const Mesh mesh = make_mesh(axes, {.device = there});
      SCOPED_TRACE(fmt::format("on ({}), remat {}, bfloat16 {}", mesh.to_string(), o.remat, o.half));
      const Trained once = whole_steps(mesh, llama(), o, false);
      const Trained captured = whole_steps(mesh, llama(), o, true);
      EXPECT_EQ(captured.losses, once.losses);
      EXPECT_EQ(captured.arrays, once.arrays);
      EXPECT_EQ(captured.told, once.told);
      EXPECT_EQ(captured.numbers, once.numbers);
    }
}

// Trains a small model; `between` is called before each step.
template <class Transform>
Trained toy_steps(const Transform& transform, const optim::OptimizerOptions& options, bool captured, int recordings,
                  const std::function<void(int, Toy&, optim::Optimizer<Toy, Transform>&)>& between = {}) {
  const MeshRules mesh_rules(make_mesh({{"data", 2}, {"model", 2}}, {.device = there}),
                             {{"batch", "data"}, {"in", replicated}, {"out", "model"}, {"vocab", "model"}});
  Toy model = nn::filter_shard(Toy::init(3), mesh_rules);
  optim::Optimizer optimizer(model, transform, options);
  const auto train = [](Toy& m, optim::Optimizer<Toy, Transform>& o, const Array& x) {
    auto [loss, grads] = nn::value_and_grad(toy_loss)(m, x);
    o.update(m, grads);
    return loss;
  };
  nn::GraphedStep step(train);
  Trained result;
  for (int i = 0; i < 6; ++i) {
    if (between) between(i, model, optimizer);
    const Array x = device_put(normal(Key(i), {8, 8}), {"batch", none}, mesh_rules);
    const Array loss = captured ? step(model, optimizer, x) : train(model, optimizer, x);
    result.losses.push_back(loss.item<float>());
  }
  result.take(model, optimizer);
  EXPECT_EQ(step.recordings(), captured ? recordings : 0);
  return result;
}

template <class Transform>
void expect_same(const Transform& transform, const optim::OptimizerOptions& options = {}) {
  const Trained once = toy_steps(transform, options, false, 1), captured = toy_steps(transform, options, true, 1);
  EXPECT_EQ(captured.losses, once.losses);
  EXPECT_EQ(captured.arrays, once.arrays);
  EXPECT_EQ(captured.numbers, once.numbers);
}

TEST_F(DeviceGraphs, EveryFusedOptimizerIsCaptured) {
  expect_same(optim::sgd({.learning_rate = falling, .momentum = 0.9, .nesterov = true}));
  expect_same(optim::adam({.learning_rate = 0.1}));
  expect_same(optim::chain(optim::clip(0.1), optim::scale_by_schedule(falling), optim::scale_by_sign(),
                           optim::scale_by_learning_rate(falling)));
  expect_same(optim::partition(by_dims, "matrix", optim::adamw({.learning_rate = falling}), "vector",
                               optim::chain(optim::clip_by_global_norm(0.1), optim::sgd({.learning_rate = 0.1}))));
  expect_same(optim::chain(optim::clip_by_global_norm(0.1), optim::adamw({.learning_rate = falling})),
              {.shard_state_over = {"data"}});
}

TEST_F(DeviceGraphs, AWholeStepReadsAsAStep) {
  using Model = Toy;
  using Batch = Array;
  using Optimizer = optim::Optimizer<Model, optim::Adamw>;
  const auto loss_fn = toy_loss;
  const MeshRules mesh_rules(make_mesh({{"data", 2}}, {.device = there}),
                             {{"batch", "data"}, {"in", replicated}, {"out", replicated}, {"vocab", replicated}});
  Model model = nn::filter_shard(Model::init(3), mesh_rules);
  Optimizer optimizer(model, optim::adamw({.learning_rate = 0.01}));
  const Batch batch = device_put(normal(Key(1), {8, 8}), {"batch", none}, mesh_rules);
  float latest = INFINITY;
  nn::GraphedStep step([loss_fn](Model& model, Optimizer& optimizer, const Batch& batch) {
    auto [loss, grads] = nn::value_and_grad(loss_fn)(model, batch);
    optimizer.update(model, std::move(grads));
    return loss;
  });
  for (int i = 0; i < 4; ++i) {
    const Array loss = step(model, optimizer, batch);
    EXPECT_LT(loss.item<float>(), latest);
    latest = loss.item<float>();
  }
  EXPECT_EQ(optimizer.count(), 4);
  EXPECT_EQ(step.recordings(), 1);
}

// Copies keep their values, and the next step starts from values that are assigned back.
TEST_F(DeviceGraphs, CopiesAndRestoredStatesAreSeen) {
  const auto transform = optim::adam({.learning_rate = falling});
  using Optimizer = optim::Optimizer<Toy, std::remove_const_t<decltype(transform)>>;
  const auto trained = [&](bool captured) {
    std::optional<Toy> model;
    std::optional<Optimizer> optimizer;
    std::vector<float> before;
    return toy_steps<typename std::remove_const_t<decltype(transform)>>(
        transform, {}, captured, 3, [&](int i, Toy& m, Optimizer& o) {
          if (i == 3) model = m, optimizer = o, before = host(m.kernel.value);
          if (i == 5) {
            EXPECT_EQ(host(model->kernel.value), before);
            m = *model, o = *optimizer;
          }
        });
  };
  EXPECT_EQ(trained(true), trained(false));
}

// The learning rate is not in the optimizer's tree. If it changes, the step must still be recorded again.
TEST_F(DeviceGraphs, AnotherOptimizerInTheSamePlaceIsRecordedAgain) {
  const MeshRules mesh_rules(make_mesh({{"data", 2}}, {.device = there}), {{"batch", "data"}});
  Array model = device_put(full({4}, 0), {"batch"}, mesh_rules);
  const Array grads = device_put(full({4}, 1), {"batch"}, mesh_rules);
  const auto of_rate = [&](double rate) { return optim::Optimizer(model, optim::sgd({.learning_rate = rate})); };
  auto optimizer = of_rate(1);
  nn::GraphedStep step([](Array& m, decltype(optimizer)& o, const Array& g) {
    o.update(m, g);
    return m;
  });
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(step(model, optimizer, grads).to_host<float>()[0], -i);
  optimizer = of_rate(10);
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(step(model, optimizer, grads).to_host<float>()[0], -3 - 10 * i);
}

TEST_F(DeviceGraphs, ANumberThatTheStepChangesIsRefused) {
  struct Counting {
    Array w;
    int64_t steps = 0;
  };
  const MeshRules mesh_rules(make_mesh({{"data", 2}}, {.device = there}), {{"batch", "data"}});
  Counting model{device_put(full({3}, 4), {none}, mesh_rules)};
  nn::GraphedStep step([](Counting& m) {
    m.w = m.w + 1.0, m.steps += 1;
    return sum(m.w);
  });
  EXPECT_EQ(step(model).item<float>(), 15);
  expect_error(ErrorKind::invalid_argument, "[GraphedStep] steps=2 after a captured step that began with steps=1",
               [&] { step(model); });
  EXPECT_EQ(model.w.to_host<float>()[0], 5);
}

template <class Transform>
void expect_no_capture(Array& model, const Transform& transform) {
  optim::Optimizer optimizer(model, transform);
  nn::GraphedStep step([](Array& m, decltype(optimizer)& o, const Array& grads) {
    o.update(m, grads);
    return m;
  });
  for (int i = 0; i < 2; ++i)
    expect_error(ErrorKind::invalid_argument, "inside a captured step, whose later calls run without the host",
                 [&] { step(model, optimizer, model + model); });
}

TEST_F(DeviceGraphs, WhatTheHostDoesIsRefused) {
  for (const char* device : {"cpu", there.c_str()}) {
    const MeshRules mesh_rules(make_mesh({{"data", 2}}, {.device = device}), {{"batch", "data"}});
    Array model = device_put(full({4}, 1), {"batch"}, mesh_rules);
    nn::GraphedStep reads([](const Array& x) { return x * sum(x).item<float>(); });
    expect_error(ErrorKind::invalid_argument, "[item] a value is read inside a captured step", [&] { reads(model); });
    optim::Optimizer optimizer(model, optim::sgd({.learning_rate = 1.0}));
    nn::GraphedStep updates([&](const Array& grads) {
      optimizer.update(model, grads);
      return model;
    });
    expect_error(ErrorKind::invalid_argument,
                 "[Optimizer.update] a model is updated inside a captured step that was not given it and its optimizer",
                 [&] { updates(model + model); });
    EXPECT_EQ(model.to_host<float>()[0], 1);
    expect_no_capture(model, optim::accumulate(optim::sgd({.learning_rate = 1.0}), 2));
    expect_no_capture(model, optim::lookahead(optim::sgd({.learning_rate = 1.0}), 2, 0.5));
    expect_no_capture(model, optim::nadam({.learning_rate = 1.0}));
    expect_no_capture(model, optim::inject_hyperparams(
                                 [](const optim::Hyperparams& h) { return optim::sgd({.learning_rate = h["rate"]}); },
                                 {{"rate", 1.0}}));
    expect_no_capture(model, optim::adamw({.learning_rate = 1.0, .weight_decay = falling}));
    EXPECT_EQ(model.to_host<float>()[0], 1);
    nn::GraphedStep step([](const Array& x) { return x + x; });
    for (int i = 0; i < 3; ++i) EXPECT_EQ(step(model).to_host<float>()[0], 2);
    EXPECT_EQ(step.recordings(), device == there ? 1 : 0);
  }
}

}  // namespace
}  // namespace tessera::captured_test
