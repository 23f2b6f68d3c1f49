// A vocabulary that its mesh axis does not divide: trained, saved and restored as on one device.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "nn/checkpoint/checkpoint.h"
#include "nn/layers/embedding.h"
#include "nn/layers/linear.h"
#include "nn/layers/mlp.h"
#include "nn/placement/filter_shard.h"
#include "nn/placement/table.h"
#include "nn/transformations/accumulate_gradients.h"
#include "nn/transformations/cast.h"
#include "nn/transformations/remat.h"
#include "nn/transformations/value_and_grad.h"
#include "optim/optimizer.h"
#include "optim/wrappers/wrappers.h"
#include "sharding/accounting/ledger.h"
#include "sharding/base/environment.h"
#include "sharding/files/file.h"
#include "sharding/operations.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"
#include "tests/data/scratch_folder.h"

namespace tessera::optim::uneven_test {
namespace {

// A next-token model whose embedding is also its head.
struct Gpt {
  nn::Embedding embedding;
  nn::Mlp mlp;

  static Gpt init(Key key, Axis vocab, Axis embed, Axis hidden) {
    auto [k1, k2] = split<2>(key);
    return {.embedding = nn::Embedding::init(k1, vocab, embed), .mlp = nn::Mlp::init(k2, embed, hidden)};
  }
  Array operator()(const Array& ids) const {
    const Array x = embedding(ids);
    return embedding.attend(x + mlp(x));
  }
};

MeshRules mesh_rules_of(const std::vector<MeshAxis>& mesh) {
  return {make_mesh(mesh),
          {{"vocab", "model", Uneven::pad}, {"hidden", "model", Uneven::pad}, {"batch", "data"}, {"embed", replicated}},
          {.missing_axes = MissingAxes::ok}};
}

auto clipped_adamw() { return chain(clip_by_global_norm(0.5), adamw({.learning_rate = 0.01, .eps = 0})); }

struct Training {
  Training(const std::vector<MeshAxis>& mesh, int64_t vocab, uint64_t seed = 1)
      : mesh_rules(mesh_rules_of(mesh)),
        vocab(vocab),
        model(nn::filter_shard(Gpt::init(Key(seed), {"vocab", vocab}, {"embed", 8}, {"hidden", 13}), mesh_rules)),
        optimizer(model, clipped_adamw()) {}

  double step() {
    const Array ids = device_put(randint(Key(optimizer.count()), {4, 6}, 0, vocab), {"batch", none}, mesh_rules);
    const auto [loss, grads] = nn::value_and_grad([](const Gpt& m, const Array& ids) {
      return cross_entropy(m(ids), ids, {.label_smoothing = 0.1});
    })(model, ids);
    optimizer.update(model, grads);
    return loss.item<double>();
  }
  auto state() { return nn::named_state("model", model, "optimizer", optimizer); }

  MeshRules mesh_rules;
  int64_t vocab;
  Gpt model;
  Optimizer<Gpt, decltype(clipped_adamw())> optimizer;
};

std::string tensors_in(const std::filesystem::path& checkpoint) {
  std::string all;
  for (const char* folder : {"params", "state"})
    for (const auto& file : std::filesystem::directory_iterator(checkpoint / folder))
      all += read_text(file.path(), "uneven_test");
  return all;
}

std::filesystem::path only_checkpoint_in(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.is_directory()) return entry.path();
  return {};
}

const std::vector<MeshAxis> meshes[] = {{{"model", 8}}, {{"data", 2}, {"model", 3}}, {{"data", 4}, {"model", 2}}};

TEST(Uneven, TrainsAsOnOneDevice) {
  const tessera::detail::CheckScope padding_is_zeros;
  Training alone({{"model", 1}}, 257);
  std::vector<double> losses;
  for (int i = 0; i < 4; ++i) losses.push_back(alone.step());
  for (const std::vector<MeshAxis>& mesh : meshes) {
    Training training(mesh, 257);
    for (const double loss : losses) EXPECT_NEAR(training.step(), loss, 1e-5);
  }
}

TEST(Uneven, NoVocabularyIsGathered) {
  Training training(meshes[0], 257);
  CommLedger ledger;
  training.step();
  for (const CommRecord& record : ledger.records()) EXPECT_LT(record.bytes, 257 * 8 * 4) << record.reason;
}

TEST(Uneven, TheTableHasTheBytesOfADevice) {
  Training training(meshes[0], 50257);
  const auto table = nn::placement_table(nn::named("model", training.model, "optimizer", training.optimizer));
  int64_t held = 0;
  for (const nn::Leaf& leaf : nn::named("model", training.model, "optimizer", training.optimizer))
    if (!leaf.value->is_absent()) held += leaf.value->shard_bytes();
  EXPECT_EQ(table.bytes_per_device(), held);
  EXPECT_EQ(table.rows()[0].shard_shape, (Shape{6283, 8}));
  EXPECT_EQ(table.rows()[0].bytes, 50257 * 8 * 4);
  EXPECT_EQ(table.rows()[0].bytes_per_device, 50264 * 8 * 4 / 8);
  EXPECT_NE(table.to_text().find("(50257 padded to 50264, 8)"), std::string::npos) << table;
  EXPECT_EQ(nn::parse_placement_table(table.to_json()), table);
}

TEST(Uneven, ACheckpointIsThatOfOneDeviceAndContinuesOnEveryMesh) {
  for (const int64_t vocab : {257, 50257}) {
    const data::ScratchFolder one, padded, again;
    Training alone({{"model", 1}}, vocab), training(meshes[0], vocab, 2);
    alone.step();
    nn::save(one.path(), 1, alone.state());
    nn::restore(one.path(), training.state());
    nn::save(padded.path(), 1, training.state());
    EXPECT_TRUE(tensors_in(only_checkpoint_in(one.path())) == tensors_in(only_checkpoint_in(padded.path())));
    Training other(meshes[1], vocab, 3);
    nn::restore(padded.path(), other.state());
    nn::save(again.path(), 1, other.state());
    EXPECT_TRUE(tensors_in(only_checkpoint_in(one.path())) == tensors_in(only_checkpoint_in(again.path())));
    const double loss = alone.step();
    EXPECT_NEAR(training.step(), loss, 1e-5);
    EXPECT_NEAR(other.step(), loss, 1e-5);
  }
}

// ---- other ways to train, with a batch, a vocabulary and a hidden dimension that the mesh does not divide

Array loss_of(const Gpt& m, const Array& ids) { return cross_entropy(m(ids), ids, {.label_smoothing = 0.1}); }

Array recomputed_loss(const Gpt& m, const Array& ids) {
  const Array x = nn::remat(m.embedding)(ids);
  return cross_entropy(m.embedding.attend(x + nn::remat(m.mlp)(x)), ids, {.label_smoothing = 0.1});
}

Array half_loss(const Gpt& m, const Array& ids) {
  return cross_entropy(astype(nn::cast(m, bfloat16)(ids), float64), ids, {.label_smoothing = 0.1});
}

struct Way {
  const char* name;
  std::function<std::pair<Array, Gpt>(const Gpt&, const Array&)> gradients;
  double tolerance = 1e-10;
};

template <class Call>
auto pair_of(Call call) {
  return [=](const Gpt& model, const Array& ids) {
    const auto [loss, grads] = call(model, ids);
    return std::pair<Array, Gpt>(loss, grads);
  };
}

// The losses of three steps, then the parameters and their moving average.
std::vector<Array> trained(const std::vector<MeshAxis>& mesh, const Way& way) {
  const MeshRules mesh_rules{make_mesh(mesh),
                             {{"vocab", "model"}, {"hidden", "model"}, {"batch", "data"}, {"embed", replicated}},
                             {.missing_axes = MissingAxes::ok, .uneven = Uneven::pad}};
  Gpt whole = nn::cast(Gpt::init(Key(1), {"vocab", 13}, {"embed", 8}, {"hidden", 7}), float64);
  whole.mlp.up = nn::with_lora(Key(2), whole.mlp.up, {.rank = 2});
  Gpt model = nn::filter_shard(whole, mesh_rules);
  Optimizer optimizer(model, chain(clip_by_global_norm(0.5), adamw({.learning_rate = 0.01}), params_ema(0.9)));
  std::vector<Array> all;
  for (uint64_t step = 0; step < 3; ++step) {
    const auto [loss, grads] =
        way.gradients(model, device_put(randint(Key(step), {6, 5}, 0, 13), {"batch", none}, mesh_rules));
    all.push_back(loss);
    optimizer.update(model, grads);
  }
  for (const nn::Leaf& leaf : nn::leaves(model)) all.push_back(*leaf.value);
  for (const nn::Leaf& leaf : nn::leaves(std::get<ParamsEmaState<Gpt>>(optimizer.state()).ema))
    all.push_back(*leaf.value);
  return all;
}

TEST(Uneven, EveryWayToTrainIsThatOfOneDevice) {
  const tessera::detail::CheckScope padding_is_zeros;
  const Way ways[] = {{"remat", pair_of(nn::value_and_grad(recomputed_loss))},
                      {"micro-batches", pair_of(nn::accumulate_gradients(loss_of, 2))},
                      {"bfloat16", pair_of(nn::value_and_grad(half_loss)), 0.05},
                      {"LoRA", pair_of(nn::value_and_grad(loss_of, nn::by_path("**.lora.**")))}};
  for (const Way& way : ways) {
    const std::vector<Array> expected = trained({{"model", 1}}, way);
    for (const std::vector<MeshAxis>& mesh :
         std::vector<std::vector<MeshAxis>>{{{"model", 8}}, {{"data", 4}, {"model", 2}}, {{"model", 3}}}) {
      const std::vector<Array> got = trained(mesh, way);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        if (expected[i].is_absent()) continue;
        const std::vector<double> a = gather(got[i]).to_host<double>(), b = gather(expected[i]).to_host<double>();
        for (size_t k = 0; k < b.size(); ++k)
          ASSERT_NEAR(a[k], b[k], way.tolerance) << way.name << ", array " << i << ' ' << got[i].type_string();
      }
    }
  }
}

}  // namespace
}  // namespace tessera::optim::uneven_test
