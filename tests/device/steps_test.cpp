// Training steps on an accelerator: the places at which the host waits for the device.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "nn/models/causal_lm.h"
#include "nn/transformations/accumulate_gradients.h"
#include "nn/transformations/cast.h"
#include "nn/transformations/value_and_grad.h"
#include "nn/tree/tree_scalars.h"
#include "optim/optimizer/contrib.h"
#include "sharding/array/array_impl.h"
#include "sharding/array/host_sync.h"
#include "sharding/random/device_draws.h"
#include "sharding/random/threefry.h"
#include "tests/device/pretended_device.h"
#include "tests/device/waits.h"
#include "tests/optim/support.h"

namespace tessera::steps_test {
namespace {

using testing::expect_error;
using testing::Waits;

const std::string there = testing::pretended_device();

struct Options {
  bool remat = false, half = false;
  int num_micro_batches = 1;
};

// Runs two steps and observes the second.
void expect_no_wait(const Mesh& mesh, nn::DecoderConfig config, const Options& options, const std::string& what) {
  const MeshRules mesh_rules(mesh, nn::decoder_rules(mesh));
  nn::CausalLM model = nn::filter_shard(nn::CausalLM::init(Key(1), config), mesh_rules);
  model.remat = options.remat;
  optim::Optimizer optimizer(model,
                             optim::chain(optim::clip_by_global_norm(0.5), optim::adamw({.learning_rate = 0.02})));
  const auto loss_of = [&](const nn::CausalLM& given, const Array& ids, const Array& labels, const Key& key) {
    const nn::CausalLM m = options.half ? nn::cast(given, bfloat16) : given;
    const Array hidden = dropout(key, m.hidden(ids), 0.1);
    return mean(cross_entropy(astype(m.logits(hidden), float32), labels));
  };
  for (uint32_t step = 0; step < 2; ++step) {
    const auto tokens = [&](uint32_t seed) {
      const Array host = array<int32_t>(randint(Key(seed), {16, 8}, 0, 32).to_host<int32_t>(), {16, 8});
      return device_put(host, {"batch", none}, mesh_rules);
    };
    const Array ids = tokens(step), labels = tokens(step + 100);
    const auto watched = std::make_unique<Waits>();
    auto [loss, grads] = nn::accumulate_gradients(loss_of, options.num_micro_batches)(model, ids, labels, Key(step));
    optimizer.update(model, grads);
    if (step == 1) {
      EXPECT_EQ(watched->all(), 0) << what << '\n' << watched->text();
    }
    const int64_t before = watched->all();
    EXPECT_GT(loss.template item<float>(), 0);
    EXPECT_EQ(watched->all() - before, 1) << what << watched->text();
  }
}

TEST(DeviceSteps, WaitOnlyForTheLoss) {
  const nn::DecoderConfig llama{.vocab_size = 32,
                                .hidden_size = 16,
                                .num_hidden_layers = 2,
                                .num_attention_heads = 4,
                                .head_dim = 4,
                                .intermediate_size = 24};
  nn::DecoderConfig gpt = nn::config_of_family("gpt2", llama);
  gpt.max_position_embeddings = 16;
  const std::vector<std::vector<MeshAxis>> meshes{{{"data", 1}},
                                                  {{"data", 4}},
                                                  {{"fsdp", 4}},
                                                  {{"model", 4}},
                                                  {{"data", 2}, {"model", 2}},
                                                  {{"data", 2}, {"fsdp", 2}, {"model", 2}}};
  for (const auto& axes : meshes)
    for (const Options& o : {Options{}, Options{.remat = true, .half = true, .num_micro_batches = 2}}) {
      const Mesh mesh = make_mesh(axes, {.device = there});
      const std::string what = fmt::format(" on ({}), remat {}, bfloat16 {}, {} micro-batches", mesh.to_string(),
                                           o.remat, o.half, o.num_micro_batches);
      expect_no_wait(mesh, gpt, o, "Gpt" + what);
      expect_no_wait(mesh, llama, o, "Llama" + what);
    }
}

// ---- late reports and errors

TEST(DeviceSteps, AnIndexOutOfRangeIsReportedWithTheNextValue) {
  const Mesh mesh = make_mesh({{"data", 2}}, {.device = there});
  const Array table = device_put(normal(Key(1), {4, 3}), NamedSharding(mesh, P{}));
  const Array ids = device_put(array<int32_t>({0, 9, -7, 1}, {4}), NamedSharding(mesh, P{"data"}));
  const Array fine = device_put(array<int32_t>({0, 3, -4, 1}, {4}), NamedSharding(mesh, P{"data"}));
  const Array rows = take(table, ids, 0);
  const int line = __LINE__ - 1;
  const std::string said =
      fmt::format("[take] indices from -7 to 9 given, expected -4 to 3. At steps_test.cpp:{}, reported late, ", line);
  expect_error(ErrorKind::invalid_argument, said, [&] { sum(rows).item<float>(); });
  expect_near(take(table, fine, 0), host(take(normal(Key(1), {4, 3}), array<int32_t>({0, 3, 0, 1}, {4}), 0)), 0);
  const Array long_value = device_put(normal(Key(2), {2048}), NamedSharding(mesh, P{}));  // read apart from the checks
  take(table, ids, 0);
  expect_error(ErrorKind::invalid_argument, "[take] indices from -7 to 9", [&] { long_value.to_host<float>(); });
  EXPECT_EQ(long_value.to_host<float>().size(), 2048u);
}

TEST(DeviceSteps, AWaitIsRefusedWhereThatIsAskedFor) {
  const Mesh mesh = make_mesh({{"data", 2}}, {.device = there});
  const Array x = device_put(ones({8}), NamedSharding(mesh, P{"data"}));
  const detail::ScopedValue<bool> errors(detail::host_syncs_are_errors(), true);
  const Array y = x + x;
  const Array total = sum(y);
  const int line = __LINE__ - 1;
  expect_error(ErrorKind::device_mismatch,
               fmt::format("[sum] steps_test.cpp:{}: the host waits for the accelerator (aten::_local_scalar_dense: a "
                           "value is read), which TESSERA_CHECK_SYNC makes an error.",
                           line),
               [&] { total.impl()->local[0].item<float>(); });
  EXPECT_EQ(sum(y).item<float>(), 16);  // an explicit read is allowed
}

// ---- optimizers that depend on values

// Compares eight updates, some with NaN gradients, with the CPU. The host waits only for the values that are read at
// the end.
template <class Transform>
void expect_update_without_wait(const Transform& transform, double tolerance, const std::string& what) {
  SCOPED_TRACE(what);
  struct Result {
    Toy model;
    std::string numbers;
  };
  const auto trained = [&](const char* device) {
    const MeshRules mesh_rules(make_mesh({{"data", 2}, {"model", 2}}, {.device = device}),
                               {{"batch", "data"}, {"in", replicated}, {"out", "model"}, {"vocab", "model"}});
    Toy model = nn::filter_shard(Toy::init(3), mesh_rules);
    optim::Optimizer optimizer(model, transform);
    Waits waits;
    for (int i = 0; i < 8; ++i) {
      const Array x = device_put(normal(Key(i), {8, 8}), {"batch", none}, mesh_rules);
      auto [loss, grads] = nn::value_and_grad(toy_loss)(model, x);
      if (i == 1 || i == 4 || i == 5) grads.bias.value = grads.bias.value * std::numeric_limits<float>::quiet_NaN();
      optimizer.update(model, grads);
    }
    if (device == there) {
      EXPECT_EQ(waits.all(), 0) << waits.text();
    }
    std::string numbers = fmt::format("rate {:.6f}", optimizer.learning_rate());
    for (const nn::Scalar& scalar : nn::scalars(optimizer))
      if (scalar.path.ends_with("count") || scalar.path.ends_with("finite"))
        numbers += " " + scalar.path + "=" + scalar.to_json();
    return Result{model, numbers};
  };
  const Result here = trained("cpu"), far = trained(there.c_str());
  expect_tree_near(far.model, here.model, tolerance);
  EXPECT_EQ(far.numbers, here.numbers);
}

TEST(DeviceSteps, ApplyIfFiniteWaitsForNothing) {
  using namespace optim;
  const Schedule falling = exponential_decay({.init_value = 0.1, .transition_steps = 1, .decay_rate = 0.5});
  expect_update_without_wait(apply_if_finite(adamw({.learning_rate = falling, .weight_decay = 0.1}), 5), 1e-5, "adamw");
  expect_update_without_wait(
      apply_if_finite(chain(clip_by_global_norm(0.5), sgd({.learning_rate = falling, .momentum = 0.9})), 5), 1e-5,
      "sgd");
  expect_update_without_wait(apply_if_finite(sign_sgd({.learning_rate = 0.1}), 5), 1e-5, "sign_sgd");
}

// nadam's bias correction on the host uses the count of its state. Updates rejected on the device must not count.
TEST(DeviceSteps, ApplyIfFiniteCountsAsOnTheHost) {
  const Mesh mesh = make_mesh({{"data", 2}}, {.device = there});
  const auto placed = [&](const Array& x) { return device_put(x, NamedSharding(mesh, P{})); };
  Array model = placed(full({2}, 1)), plain = model;
  optim::Optimizer optimizer(model, optim::apply_if_finite(optim::nadam({.learning_rate = 0.1}), 1));
  optim::Optimizer reference(plain, optim::nadam({.learning_rate = 0.1}));
  const Array good = placed(array<float>({1, -2})), bad = placed(array<float>({NAN, 1}));
  for (const Array& g : {good, bad, good, bad, good}) optimizer.update(model, g);
  for (int i = 0; i < 3; ++i) reference.update(plain, good);
  expect_near(model, host(plain), 1e-6);
  EXPECT_EQ(optimizer.state().total_notfinite, 2);
  EXPECT_EQ(std::get<0>(optimizer.state().inner_state).count, 3);
  for (int i = 0; i < 2; ++i) optimizer.update(model, bad);
  EXPECT_TRUE(std::isnan(host(model)[0]));
  EXPECT_EQ(optimizer.state().notfinite_count, 2);
}

TEST(DeviceSteps, ProdigyWaitsForNothing) {
  const Mesh mesh = make_mesh({{"data", 2}}, {.device = there});
  const Array w = normal(Key(1), {8, 4}), x = normal(Key(2), {8, 8});
  const auto loss = [](const Array& m, const Array& rows) { return mean(square(matmul(rows, m))); };
  const auto trained = [&](Array model, const Array& rows) {
    optim::Optimizer optimizer(model, optim::prodigy({.estim_lr0 = 1e-2}));
    Waits waits;
    for (int i = 0; i < 5; ++i) optimizer.update(model, nn::value_and_grad(loss)(model, rows).second);
    EXPECT_EQ(waits.all(), 0) << waits.text();
    return std::pair(host(model), optimizer.state().estim_lr.value());
  };
  const auto placed = [&](const Array& host) { return device_put(host, NamedSharding(mesh, P{})); };
  const auto [here, rate] = trained(w, x);
  const auto [far, rate_there] = trained(placed(w), placed(x));
  for (size_t i = 0; i < here.size(); ++i) EXPECT_NEAR(far[i], here[i], 1e-5);
  EXPECT_NEAR(rate_there, rate, 1e-6);
  EXPECT_GT(rate, 1e-2);
}

TEST(DeviceSteps, TheNormOfTheGradientsIsReadWhenItIsAskedFor) {
  const Mesh mesh = make_mesh({{"data", 2}}, {.device = there});
  Array model = device_put(ones({4}), NamedSharding(mesh, P{"data"}));
  optim::Optimizer optimizer(model, optim::chain(optim::clip_by_global_norm(1.0), optim::sgd({.learning_rate = 1.0})));
  Waits waits;
  optimizer.update(model, model + model);
  EXPECT_EQ(waits.all(), 0) << waits.text();
  EXPECT_EQ(optimizer.grad_norm(), 4);
  EXPECT_EQ(waits.all(), 1) << waits.text();
  for (const nn::Scalar& scalar : nn::scalars(optimizer))
    if (scalar.path.ends_with("norm")) {
      EXPECT_EQ(scalar.to_json(), "4E0");
    }
  expect_near(model, {0.5, 0.5, 0.5, 0.5}, 1e-6);
}

// Compares the GPU kernel, element by element, with the LibTorch operations that replace it.
TEST(DeviceSteps, EveryElementHasTheBitsOfTheHost) {
  const Key key(5);
  const Shape shape{3, 70, 9};
  const IndexRanges block{{1, 3}, {10, 60}, {0, 9}};
  const auto expect_same = [&](detail::Law law, double low, double high, const std::vector<float>& expected) {
    const detail::BlockDraw draw = detail::block_draw(law, key, {low, high}, shape, block);
    ASSERT_EQ(draw.size, static_cast<int64_t>(expected.size()));
    const at::Tensor by_operations = detail::drawn_by_operations(draw, {draw.size}, c10::kCPU);
    const float* values = static_cast<const float*>(by_operations.const_data_ptr());
    for (int64_t i = 0; i < draw.size; ++i) {
      EXPECT_EQ(detail::number_at(draw, i), expected[i]) << "law " << static_cast<int>(law) << " at " << i;
      EXPECT_EQ(values[i], expected[i]) << "law " << static_cast<int>(law) << " at " << i;
    }
  };
  std::vector<float> x(2 * 50 * 9);
  for (const auto& [low, high] : {std::pair(0.0, 1.0), {-1.0, 2.0}, {0.25, 0.75}}) {
    random_uniform(key, shape, block, low, high, x.data());
    expect_same(detail::Law::uniform, low, high, x);
  }
  random_normal(key, shape, block, x.data());
  expect_same(detail::Law::normal, std::nextafter(-1.0f, 0.0f), 1, x);
  random_exponential(key, shape, block, x.data());
  expect_same(detail::Law::exponential, 0, 1, x);
  random_gumbel(key, shape, block, x.data());
  expect_same(detail::Law::gumbel, std::numeric_limits<float>::min(), 1, x);
}

}  // namespace
}  // namespace tessera::steps_test
