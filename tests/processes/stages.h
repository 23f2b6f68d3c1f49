// A small model with pipeline stages, meshes and rules for it, and the curve of its training.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nn/layers/embedding.h"
#include "nn/layers/mlp.h"
#include "nn/layers/norm.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/cast.h"
#include "optim/optimizer.h"
#include "sharding/accounting/ledger.h"
#include "sharding/operations.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::testing {

struct Block {
  nn::LayerNorm norm;
  nn::Mlp mlp;

  Array operator()(const Array& x) const { return x + mlp(norm(x)); }
};

// The first stage uses the embedding for the tokens, and the last stage uses it as the head.
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

inline Batch make_batch(int step) {
  std::vector<int32_t> ids, labels;
  for (int i = 0; i < 48; ++i) ids.push_back((i * 7 + step) % 12), labels.push_back((i * 5 + step) % 12);
  Batch batch;
  batch.ids = array<int32_t>(ids, {16, 3});
  batch.labels = array<int32_t>(labels, {16, 3});
  return batch;
}

inline Array loss_of(const Model& model, const Batch& batch) { return cross_entropy(model(batch.ids), batch.labels); }

struct Strategy {
  const char* name;
  std::vector<MeshAxis> mesh;
  Rules rules;
};

inline const Rules pipe{
    {"layers", "pipe"}, {"batch", replicated}, {"embed", replicated}, {"hidden", replicated}, {"vocab", replicated}};
inline const Rules pipe_data{
    {"layers", "pipe"}, {"batch", "data"}, {"embed", replicated}, {"hidden", replicated}, {"vocab", replicated}};
inline const Rules pipe_fsdp{
    {"layers", "pipe"}, {"batch", "data"}, {"embed", "data"}, {"hidden", replicated}, {"vocab", replicated}};
inline const Rules pipe_data_model{
    {"layers", "pipe"}, {"batch", "data"}, {"embed", replicated}, {"hidden", "model"}, {"vocab", "model"}};

inline const std::vector<Strategy> strategies{
    {"pipe2", {{"pipe", 2}}, pipe},
    {"pipe4", {{"pipe", 4}}, pipe},
    {"pipe2_data2", {{"pipe", 2}, {"data", 2}}, pipe_data},
    {"pipe4_data2", {{"pipe", 4}, {"data", 2}}, pipe_data},
    {"data2_pipe2", {{"data", 2}, {"pipe", 2}}, pipe_data},
    {"pipe2_fsdp4", {{"pipe", 2}, {"data", 4}}, pipe_fsdp},
    {"pipe2_data2_model2", {{"pipe", 2}, {"data", 2}, {"model", 2}}, pipe_data_model},
    {"pipe4_data2_model2", {{"pipe", 4}, {"data", 2}, {"model", 2}}, pipe_data_model},
};

// Returns the rules with interleaved layers.
inline Rules interleaved_rules(Rules rules, int64_t num_virtual_stages) {
  rules[0] = {"layers", interleaved("pipe", num_virtual_stages)};
  return rules;
}

inline const Strategy& strategy(std::string_view name) {
  return *std::find_if(strategies.begin(), strategies.end(), [&](const Strategy& s) { return s.name == name; });
}

inline int64_t devices_of(const Strategy& s) {
  int64_t n = 1;
  for (const MeshAxis& axis : s.mesh) n *= axis.size;
  return n;
}

inline Batch placed(const Batch& batch, const MeshRules& mesh_rules) {
  Batch there = batch;
  for (NamedArray* x : {&there.ids, &there.labels}) *x = device_put(x->value, x->axes, mesh_rules);
  return there;
}

inline constexpr int depth = 4, steps = 3;

struct Curve {
  std::vector<double> losses, norms;
};

template <class Tree, class Step>
Curve curve_of(Tree model, const std::optional<MeshRules>& mesh_rules, const Step& step,
               const optim::OptimizerOptions& options = {}) {
  if (mesh_rules) model = nn::filter_shard(model, *mesh_rules);
  auto optimizer = optim::Optimizer(
      model, optim::chain(optim::clip_by_global_norm(0.5), optim::adamw({.learning_rate = 1e-2})), options);
  Curve curve;
  for (int i = 0; i < steps; ++i) {
    const Batch batch = mesh_rules ? placed(make_batch(i), *mesh_rules) : make_batch(i);
    auto [loss, gradients] = step(model, batch);
    curve.losses.push_back(loss.template item<double>());
    curve.norms.push_back(optim::global_norm(gradients).template item<double>());
    optimizer.update(model, gradients);
  }
  return curve;
}

inline void expect_same(const Curve& a, const Curve& b, double tolerance = 1e-10) {
  for (int i = 0; i < steps; ++i) {
    EXPECT_NEAR(a.losses[i], b.losses[i], tolerance) << "step " << i;
    EXPECT_NEAR(a.norms[i], b.norms[i], tolerance) << "step " << i;
  }
}

// Returns one line per kind of collective, mesh axes and pass, with count and bytes.
inline std::string said_of(const CommLedger& ledger) {
  std::map<std::string, std::pair<int, int64_t>> rows;
  for (const CommRecord& r : ledger.records()) {
    auto& [count, bytes] = rows[r.kind + " " + r.mesh_axes + (r.backward ? " back" : "")];
    count += 1, bytes += r.bytes;
  }
  std::string text;
  for (const auto& [what, sums] : rows)
    text += what + ": " + std::to_string(sums.first) + ", " + std::to_string(sums.second) + "\n";
  return text;
}

}  // namespace tessera::testing
