// Layers on stages of a mesh: the training of one device, on one process's virtual devices and across processes.
#include "nn/layers/embedding.h"
#include "nn/layers/mlp.h"
#include "nn/layers/norm.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/cast.h"
#include "nn/transformations/pipeline.h"
#include "nn/transformations/value_and_grad.h"
#include "optim/optimizer.h"
#include "sharding/accounting/ledger.h"
#include "sharding/operations.h"
#include "sharding/placement/sub_mesh.h"
#include "sharding/random/random.h"
#include "tests/processes/ways.h"
#include "tests/sharding/expect_error.h"

namespace tessera {
namespace {

using namespace tessera::testing;

struct Block {
  nn::LayerNorm norm;
  nn::Mlp mlp;

  Array operator()(const Array& x) const { return x + mlp(norm(x)); }
};

// The table of tokens is used on the first and on the last stage.
struct Model {
  nn::Embedding embedding;
  std::vector<Block> layers;
  nn::LayerNorm norm;

  static Model init(const Key& key, int depth) {
    const Axis embed{"embed", 8}, hidden{"hidden", 16};
    Model model{nn::Embedding::init(key, {"vocab", 12}, embed), {}, nn::LayerNorm::init(embed)};
    for (int i = 0; i < depth; ++i)
      model.layers.push_back({nn::LayerNorm::init(embed), nn::Mlp::init(fold_in(key, i), embed, hidden)});
    return nn::cast(model, float64);
  }
  Array operator()(const Array& ids) const {
    Array x = embedding(ids);
    for (const Block& block : layers) x = block(x);
    return embedding.attend(norm(x));
  }
};

struct Batch {
  NamedArray ids{"batch", none}, labels{"batch", none};
};

Batch make_batch(int step) {
  std::vector<int32_t> ids, labels;
  for (int i = 0; i < 48; ++i) ids.push_back((i * 7 + step) % 12), labels.push_back((i * 5 + step) % 12);
  Batch batch;
  batch.ids = array<int32_t>(ids, {16, 3});
  batch.labels = array<int32_t>(labels, {16, 3});
  return batch;
}

Array loss_of(const Model& model, const Batch& batch) { return cross_entropy(model(batch.ids), batch.labels); }

struct Strategy {
  const char* name;
  std::vector<MeshAxis> mesh;
  Rules rules;
};

const Rules pipe{{"layers", "pipe"}, {"batch", replicated}, {"embed", replicated}, {"hidden", replicated},
                 {"vocab", replicated}};
const Rules pipe_data{{"layers", "pipe"}, {"batch", "data"}, {"embed", replicated}, {"hidden", replicated},
                      {"vocab", replicated}};
const Rules pipe_fsdp{{"layers", "pipe"}, {"batch", "data"}, {"embed", "data"}, {"hidden", replicated},
                      {"vocab", replicated}};
const Rules pipe_data_model{{"layers", "pipe"}, {"batch", "data"}, {"embed", replicated}, {"hidden", "model"},
                            {"vocab", "model"}};

const std::vector<Strategy> strategies{
    {"pipe2", {{"pipe", 2}}, pipe},
    {"pipe4", {{"pipe", 4}}, pipe},
    {"pipe2_data2", {{"pipe", 2}, {"data", 2}}, pipe_data},
    {"pipe4_data2", {{"pipe", 4}, {"data", 2}}, pipe_data},
    {"data2_pipe2", {{"data", 2}, {"pipe", 2}}, pipe_data},
    {"pipe2_fsdp4", {{"pipe", 2}, {"data", 4}}, pipe_fsdp},
    {"pipe2_data2_model2", {{"pipe", 2}, {"data", 2}, {"model", 2}}, pipe_data_model},
    {"pipe4_data2_model2", {{"pipe", 4}, {"data", 2}, {"model", 2}}, pipe_data_model},
};

int64_t devices_of(const Strategy& s) {
  int64_t n = 1;
  for (const MeshAxis& axis : s.mesh) n *= axis.size;
  return n;
}

Batch placed(const Batch& batch, const Layout& layout) {
  Batch there = batch;
  for (NamedArray* x : {&there.ids, &there.labels}) *x = device_put(x->value, x->axes, layout);
  return there;
}

constexpr int depth = 4, steps = 3;

struct Curve {
  std::vector<double> losses, norms;
};

template <class Step>
Curve curve_of(Model model, const std::optional<Layout>& layout, const Step& step) {
  if (layout) model = nn::filter_shard(model, *layout);
  auto optimizer =
      optim::Optimizer(model, optim::chain(optim::clip_by_global_norm(0.5), optim::adamw({.learning_rate = 1e-2})));
  Curve curve;
  for (int i = 0; i < steps; ++i) {
    const Batch batch = layout ? placed(make_batch(i), *layout) : make_batch(i);
    auto [loss, gradients] = step(model, batch);
    curve.losses.push_back(loss.template item<double>());
    curve.norms.push_back(optim::global_norm(gradients).template item<double>());
    optimizer.update(model, gradients);
  }
  return curve;
}

void expect_same(const Curve& a, const Curve& b) {
  for (int i = 0; i < steps; ++i) {
    EXPECT_NEAR(a.losses[i], b.losses[i], 1e-10) << "step " << i;
    EXPECT_NEAR(a.norms[i], b.norms[i], 1e-10) << "step " << i;
  }
}

TEST(Stages, TrainAsOneDeviceDoes) {
  const Model model = Model::init(Key(0), depth);
  const auto step = [](const Model& m, const Batch& b) { return nn::value_and_grad(loss_of)(m, b); };
  const Curve expected = curve_of(model, std::nullopt, step);
  for (const Strategy& s : strategies) {
    if (devices_of(s) % process_count()) continue;
    SCOPED_TRACE(s.name);
    expect_same(curve_of(model, Layout(make_mesh(s.mesh), s.rules), step), expected);
  }
}

TEST(Stages, TrainInMicroBatchesByEachSchedule) {
  const Model model = Model::init(Key(0), depth);
  const auto step = [](const Model& m, const Batch& b) { return nn::value_and_grad(loss_of)(m, b); };
  const Curve expected = curve_of(model, std::nullopt, step);
  for (const Strategy& s : strategies)
    for (const nn::Schedule schedule : {nn::Schedule::gpipe, nn::Schedule::one_f_one_b}) {
      if (devices_of(s) % process_count()) continue;
      SCOPED_TRACE(std::string(s.name) + " " + std::string(name_of(schedule)));
      const auto pipelined = [&](const Model& m, const Batch& b) {
        return nn::pipeline(loss_of, {.micro_batches = 4, .schedule = schedule})(m, b);
      };
      expect_same(curve_of(model, Layout(make_mesh(s.mesh), s.rules), pipelined), expected);
    }
}

}  // namespace
}  // namespace tessera
