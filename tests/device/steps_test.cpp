// Training steps on an accelerator: where the host waits for it.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "nn/layers/moe.h"
#include "nn/models/gpt2.h"
#include "nn/models/llama.h"
#include "nn/transformations/accumulate_gradients.h"
#include "nn/transformations/cast.h"
#include "nn/transformations/value_and_grad.h"
#include "nn/tree/tree_scalars.h"
#include "optim/optimizer/contrib.h"
#include "sharding/array/array_impl.h"
#include "sharding/array/host_sync.h"
#include "sharding/random/samplers.h"
#include "sharding/random/threefry.h"
#include "tests/device/pretended_device.h"
#include "tests/optim/support.h"

namespace tessera::steps_test {
namespace {

using testing::expect_error;

const std::string there = testing::pretended_device();

// Every wait, by kernel and operation.
class Waits : public detail::HostSyncObserver {
 public:
  void waited(detail::HostSync sync, const std::string& kernel) override {
    ++count_[fmt::format("{} {} after {} at {}", sync == detail::HostSync::read ? "reads" : "hands over", kernel,
                         detail::latest_operation().name, detail::latest_line())];
  }
  int64_t reads() const { return of("reads"); }
  int64_t all() const { return of(""); }
  std::string text() const {
    std::string text;
    for (const auto& [what, n] : count_) text += fmt::format("  {} x {}\n", n, what);
    return text;
  }

 private:
  int64_t of(const std::string& kind) const {
    int64_t sum = 0;
    for (const auto& [what, n] : count_) sum += what.starts_with(kind) ? n : 0;
    return sum;
  }
  std::map<std::string, int64_t> count_;
};

struct Options {
  bool remat = false, half = false;
  int num_micro_batches = 1;
};

// Two steps; the second is watched.
template <class Model>
void expect_no_wait(const Mesh& mesh, nn::DecoderConfig config, const Options& options, const std::string& what) {
  const MeshRules mesh_rules(mesh, nn::decoder_rules(mesh));
  Model model = nn::filter_shard(Model::init(Key(1), config), mesh_rules);
  model.remat = options.remat;
  optim::Optimizer optimizer(model,
                             optim::chain(optim::clip_by_global_norm(0.5), optim::adamw({.learning_rate = 0.02})));
  const auto loss_of = [&](const Model& given, const Array& ids, const Array& labels, const Key& key) {
    const Model m = options.half ? nn::cast(given, bfloat16) : given;
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

TEST(DeviceSteps, WaitForNothingButTheLoss) {
  const nn::DecoderConfig llama{.vocab_size = 32,
                                .hidden_size = 16,
                                .num_hidden_layers = 2,
                                .num_attention_heads = 4,
                                .head_dim = 4,
                                .intermediate_size = 24};
  nn::DecoderConfig gpt = llama;
  gpt.family = nn::DecoderFamily::gpt2, gpt.max_position_embeddings = 16;
  gpt.attention_bias = gpt.output_bias = gpt.mlp_bias = gpt.tie_word_embeddings = true,
  gpt.hidden_act = {nn::Activation::gelu};
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
      expect_no_wait<nn::Gpt2>(mesh, gpt, o, "Gpt" + what);
      expect_no_wait<nn::Llama>(mesh, llama, o, "Llama" + what);
    }
}

// ---- what is reported late, and what is refused

TEST(DeviceSteps, AnIndexOutsideIsSaidWithTheNextValue) {
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
  EXPECT_EQ(sum(y).item<float>(), 16);  // the program asks for it
}

// ---- rows by group, whose sizes the host does not read where a device has all groups

MeshRules four_slots(Rules rules) {
  for (const char* name : {"batch", "group", "out", "embed", "hidden", "experts"}) rules.push_back({name, replicated});
  return MeshRules(make_mesh({{"data", 2}, {"model", 2}}, {.device = there}), rules);
}

// The sum of its products with `weights` has gradients for x and kernels.
std::vector<Array> ragged_dot_and_gradients(const Array& x, const Array& kernels, const Array& sizes,
                                            const Array& weights) {
  const auto loss = [&](const std::vector<Array>& given) {
    return sum(ragged_dot(given[0], given[1], sizes) * weights);
  };
  std::vector<Array> all = nn::value_and_grad(loss)(std::vector<Array>{x, kernels}).second;
  all.push_back(ragged_dot(x, kernels, sizes));
  return all;
}

TEST(DeviceSteps, RowsByGroupAreThoseOfTheHost) {
  constexpr int64_t rows = 12, in = 3, out = 5;
  const std::vector<std::vector<int32_t>> tables{{3, 3, 3, 3, 3, 3, 3, 3},   {12, 0, 0, 0, 0, 0, 0, 12},
                                                 {0, 12, 0, 0, 0, 12, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0},
                                                 {1, 2, 0, 9, 7, 0, 1, 1},   {0, 0, 5, 0, 0, 0, 6, 0}};
  for (const DType dtype : {float32, bfloat16})
    for (const std::vector<int32_t>& table : tables)
      for (const Rules& rules : {Rules{}, Rules{{"group", "model"}}, Rules{{"out", "model"}, {"batch", "data"}}}) {
        const Array x = astype(normal(Key(1), {2, rows, in}), dtype), w = astype(normal(Key(2), {4, in, out}), dtype),
                    sizes = array(table, {2, 4}), weights = normal(Key(3), {2, rows, out});
        const MeshRules mesh_rules = four_slots(rules);
        const Array far_x = device_put(x, {"batch", none, none}, mesh_rules),
                    far_w = device_put(w, {"group", none, "out"}, mesh_rules),
                    far_sizes = device_put(sizes, {"batch", none}, mesh_rules),
                    far_weights = device_put(weights, {"batch", none, none}, mesh_rules);
        auto waits = std::make_unique<Waits>();
        const std::vector<Array> far = ragged_dot_and_gradients(far_x, far_w, far_sizes, far_weights);
        const bool are_sharded = !rules.empty() && rules[0].logical == "group";
        EXPECT_EQ(waits->all() > 0, are_sharded) << waits->text();
        waits.reset();
        const std::vector<Array> here = ragged_dot_and_gradients(x, w, sizes, weights);
        for (size_t i = 0; i < here.size(); ++i)
          expect_near(far[i], host(here[i]), dtype == float32 ? 1e-5 : 0.1, fmt::format("sizes {}: {}", table, i));
      }
}

TEST(DeviceSteps, GroupsOfMoreRowsThanThereAreAreSaidWithTheNextValue) {
  const Mesh mesh = make_mesh({{"data", 1}}, {.device = there});
  const auto placed = [&](const Array& x) { return device_put(x, NamedSharding(mesh, P{})); };
  const Array rows = placed(ones({4, 2})), kernels = placed(ones({2, 2, 3}));
  for (const auto& [sizes, words] : {std::pair(std::vector<int32_t>{1, 4}, "ends of groups from 1 to 5 given"),
                                     {std::vector<int32_t>{-1, 4}, "sizes from -1 to 4 given"},
                                     {std::vector<int32_t>{5, -7}, "sizes from -7 to 5 given"}}) {
    const Array y = ragged_dot(rows, kernels, placed(array(sizes)));
    expect_error(ErrorKind::invalid_argument,
                 fmt::format("[ragged_dot] {}, expected 0 to 4. At steps_test.cpp:", words),
                 [&] { y.to_host<float>(); });
  }
}

TEST(DeviceSteps, ExpertsWithoutACapacityAreThoseOfTheHost) {
  for (const Rules& rules : {Rules{{"batch", "data"}}, Rules{{"batch", "data"}, {"experts", "model"}}}) {
    const MeshRules mesh_rules = four_slots(rules);
    const auto loss = [](const nn::MoeMlp& m, const Array& x) { return mean(square(m(x).out)); };
    nn::MoeMlp layer =
        nn::MoeMlp::init(Key(0), {"embed", 4}, {"hidden", 6}, {"experts", 4}, {.capacity_factor = {}, .gated = true});
    const Array x = normal(Key(1), {2, 8, 4});
    const auto [here, grads_here] = nn::value_and_grad(loss)(layer, x);
    layer = nn::filter_shard(layer, mesh_rules);
    const Array far_x = device_put(x, {"batch", none, none}, mesh_rules);
    nn::value_and_grad(loss)(layer, far_x);
    const auto waits = std::make_unique<Waits>();
    const auto [far, grads] = nn::value_and_grad(loss)(layer, far_x);
    EXPECT_EQ(waits->all() > 0, rules.size() == 2) << waits->text();  // experts on several devices
    EXPECT_NEAR(far.item<float>(), here.item<float>(), 1e-5);
    expect_tree_near(grads, grads_here, 1e-5);
  }
}

// ---- optimizers that decide on values

// Eight updates, of which some have a NaN, as on the CPU; no wait but for what is read at the end.
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

// Of whose inner state the host must know the count.
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

// What a GPU's kernel computes, element by element, and what LibTorch's operations do in its place.
TEST(DeviceSteps, EveryElementHasTheBitsOfTheHost) {
  const Key key(5);
  const Shape shape{3, 70, 9};
  const IndexRanges block{{1, 3}, {10, 60}, {0, 9}};
  const auto expect_same = [&](detail::Law law, double low, double high, const std::vector<float>& expected) {
    const detail::BlockDraw draw = detail::block_draw(law, key, {low, high}, shape, block);
    ASSERT_EQ(draw.size, static_cast<int64_t>(expected.size()));
    const at::Tensor by_operations = detail::drawn_by_operations(draw, {draw.size}, c10::kCPU);
    const float* values = by_operations.const_data_ptr<float>();
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
