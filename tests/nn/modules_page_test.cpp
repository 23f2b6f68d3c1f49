// The code of docs/modules.md.
#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "nn/layers/linear.h"
#include "nn/layers/module_scope.h"
#include "nn/layers/norm.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/accumulate_gradients.h"
#include "nn/transformations/eval_shape.h"
#include "nn/transformations/remat.h"
#include "nn/transformations/value_and_grad.h"
#include "nn/tree/tree_at.h"
#include "nn/tree/tree_equal.h"
#include "sharding/operations.h"
#include "sharding/random/random.h"
#include "tests/nn/support.h"

namespace tessera::modules_page_test {
namespace {

struct Block {
  nn::RMSNorm norm;
  nn::Linear up, down;
  std::optional<nn::Linear> gate;
  double rate = 0.1;  // static fields: settings, which are not arrays
  bool inference = false;

  static Block init(const Key& key, const Axis& embed, const Axis& hidden) {
    const auto [k1, k2] = split<2>(key);
    return {.norm = nn::RMSNorm::init({"norm", embed.size}),
            .up = nn::Linear::init(k1, embed, hidden),
            .down = nn::Linear::init(k2, hidden, embed),
            .gate = {}};
  }
  Array operator()(const Array& x) const { return x + down(gelu(up(norm(x)))); }
};

struct Scale {
  nn::Param w;

  static Scale init(const Axis& features) { return {.w = {ones({features.size}), {features.name}}}; }
  Array operator()(const Array& x) const { return x * w; }
};

class Average {
 public:
  template <class Visit>
  void visit_fields(Visit&& visit) {
    visit("sum", sum_);
    visit("count", count_);
  }
  void add(const Array& x) { sum_ = sum_ + x, ++count_; }

 private:
  Array sum_ = zeros({});
  int64_t count_ = 0;
};

struct Model {
  std::vector<Block> blocks;
  nn::Linear head;

  Array operator()(const Array& x) const {
    Array y = x;
    for (const Block& block : blocks) y = nn::remat(block, RematPolicy::dots_saveable)(y);
    return head(y);
  }
};

struct Center {
  nn::Buffer mean;
  Key key{0};
  bool inference = false;

  Array operator()(const Array& x) {
    if (inference) return x - mean;
    const Array now = tessera::mean(x, {0});
    mean.value = 0.9 * mean.value + 0.1 * now;
    return x - now;
  }
};

Model make_model() {
  Model model{.blocks = {}, .head = nn::Linear::init(Key(9), {"embed", 4}, {"vocab", 6})};
  for (const Key& key : split(Key(0), 2)) model.blocks.push_back(Block::init(key, {"embed", 4}, {"hidden", 8}));
  return model;
}

Array loss_of(const Model& model, const Array& x) { return mean(square(model(x))); }

TEST(ModulesPage, TreesAndFilters) {
  const Model model = make_model(), a = model, b = nn::tree_map([](const Array&x) { return x * 3; }, model);
  const Model mean = nn::tree_map([](const Array& x, const Array& y) { return (x + y) / 2; }, a, b);
  EXPECT_TRUE(nn::tree_equal(mean, nn::tree_map([](const Array& x) { return x * 2; }, model), {.rtol = 1e-6}));
  const Model longer = nn::tree_at(&Model::head, model, nn::Linear::init(Key(1), {"embed", 4}, {"vocab", 8}));
  EXPECT_EQ(longer.head.kernel.value.shape(1), 8);
  const Model halved = nn::tree_at("blocks.*.up.kernel", model, [](const Array& w) { return w * 0.5; });
  EXPECT_EQ(nn::tree_difference(model, halved), "blocks.0.up.kernel: two float32[4,8] with different values");
  const auto [decayed, rest] = nn::partition(model, nn::is_param && !nn::by_path("**.bias") && !nn::by_axis("norm"));
  const Model whole = nn::combine(decayed, rest);
  EXPECT_TRUE(nn::tree_equal(whole, model));
  EXPECT_EQ(nn::tree_leaves(decayed).size(), 5u);
  Average average;
  EXPECT_EQ(nn::testing::paths_of(nn::leaves(average)), std::vector<std::string>{"sum"});
}

TEST(ModulesPage, ACustomParam) {
  const MeshRules mesh_rules{make_mesh({{"model", 2}}), {{"hidden", "model"}}};
  const Scale scale = nn::filter_shard(Scale::init({"hidden", 4}), mesh_rules);
  EXPECT_EQ(nn::testing::paths_of(nn::leaves(scale)), std::vector<std::string>{"w"});
  EXPECT_EQ(scale.w.value.sharding().spec().to_string(), "P('model')");
  const Array x = normal(Key(3), {8, 4});
  nn::testing::expect_near(scale(x), x, 0, "scaled by 1");
}

TEST(ModulesPage, TrainingAPart) {
  const Model model = make_model();
  const Array x = normal(Key(2), {8, 4});
  const auto [loss, grads] = nn::value_and_grad(loss_of, nn::by_path("head.**"))(model, x);
  EXPECT_EQ(nn::tree_leaves(grads).size(), 2u);
  const auto [same, parts] = nn::accumulate_gradients(loss_of, 4, nn::by_path("head.**"))(model, x);
  nn::testing::expect_trees_near(parts, grads, 1e-5, "micro-batches");
}

TEST(ModulesPage, ACallThatChangesItsModule) {
  Center center{.mean = {zeros({4}), {"embed"}}};
  const Array x = ones({8, 4});
  center(x);
  nn::testing::expect_near(center.mean, full({4}, 0.1), 1e-6, "mean");
  nn::testing::expect_near(nn::inference_mode(center)(x), full({8, 4}, 0.9), 1e-6, "inference");
}

TEST(ModulesPage, ShapesOnly) {
  const Model model = make_model();
  const Array logits = nn::eval_shape(model, zeros({1 << 20, 4}));
  EXPECT_EQ(logits.shape(), (Shape{1 << 20, 6}));
}

}  // namespace
}  // namespace tessera::modules_page_test
