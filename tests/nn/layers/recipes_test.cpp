// Lazy initializers: a model takes no memory until it is placed, and has the same values under every sharding.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "nn/layers/attention.h"
#include "nn/layers/embedding.h"
#include "nn/layers/mlp.h"
#include "nn/layers/norm.h"
#include "nn/placement/filter_shard.h"
#include "nn/placement/table.h"
#include "sharding/operations.h"
#include "tests/nn/support.h"
#include "tests/sharding/allocations.h"

namespace tessera::nn::recipes_test {
namespace {

using tessera::testing::Allocations;

struct Model {
  Embedding embed;
  LayerNorm norm;
  MultiheadAttention attn;
  std::vector<Mlp> layers;

  static Model init(const Key& key) {
    const auto [k1, k2, k3] = split<3>(key);
    const Axis embed{"embed", 64};
    Model model{.embed = Embedding::init(k1, {"vocab", 256}, embed),
                .norm = LayerNorm::init({"norm", 64}),
                .attn = MultiheadAttention::init(k2, embed, {"heads", 64}, 4),
                .layers = {}};
    for (const Key& k : split(k3, 2)) model.layers.push_back(Mlp::init(k, embed, {"hidden", 256}));
    return model;
  }
};

TEST(LazyInitializers, the_allocations_are_seen) {
  const Allocations seen;
  array<float>({1, 2, 3});
  EXPECT_GE(seen.largest(), 12);
}

TEST(LazyInitializers, init_allocates_nothing) {
  const Allocations seen;
  const Model model = Model::init(Key(0));
  for (const Leaf& leaf : leaves(model)) EXPECT_TRUE(leaf.value->is_lazy()) << leaf.path;
  EXPECT_EQ(seen.sizes(), std::vector<int64_t>());
}

TEST(LazyInitializers, the_table_before_placing_allocates_nothing) {
  const Allocations seen;
  const MeshRules mesh_rules = testing::strategies()[3].mesh_rules;
  EXPECT_GT(placement_table(Model::init(Key(0)), mesh_rules).bytes_per_device(), 0);
  EXPECT_EQ(seen.sizes(), std::vector<int64_t>());
}

TEST(LazyInitializers, placing_allocates_no_more_than_a_shard) {
  for (const auto& [name, mesh_rules] : testing::strategies()) {
    const PlacementTable table = placement_table(Model::init(Key(0)), mesh_rules);
    int64_t largest_shard = 0;
    for (const PlacementRow& row : table.rows()) largest_shard = std::max(largest_shard, row.bytes_per_device);
    const Allocations seen;
    (void)filter_shard(Model::init(Key(0)), mesh_rules);
    EXPECT_LE(seen.largest(), largest_shard) << name;
  }
}

TEST(LazyInitializers, one_seed_gives_the_same_parameters_everywhere) {
  const Model expected = filter_shard(Model::init(Key(7)), testing::strategies()[0].mesh_rules);
  const Leaves reference = leaves(expected);
  for (const auto& [name, mesh_rules] : testing::strategies()) {
    const Model model = filter_shard(Model::init(Key(7)), mesh_rules);
    const Leaves all = leaves(model);
    for (size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(all[i].value->to_host<float>(), reference[i].value->to_host<float>()) << name << ' ' << all[i].path;
  }
}

TEST(LazyInitializers, a_parameter_that_was_never_placed_has_the_same_values) {
  const Model model = Model::init(Key(7)), placed = filter_shard(model, testing::strategies()[5].mesh_rules);
  testing::expect_trees_near(model, placed, 0, "unplaced");
}

TEST(LazyInitializers, parameters_are_independent) {
  const Model a = Model::init(Key(7)), b = Model::init(Key(8));
  EXPECT_NE(a.layers[0].up.kernel.value.to_host<float>(), a.layers[1].up.kernel.value.to_host<float>());
  EXPECT_NE(a.attn.q.kernel.value.to_host<float>(), a.attn.k.kernel.value.to_host<float>());
  EXPECT_NE(a.embed.tokens.value.to_host<float>(), b.embed.tokens.value.to_host<float>());
}

}  // namespace
}  // namespace tessera::nn::recipes_test
