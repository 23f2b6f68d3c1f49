// filter_shard: its three forms, the names and rules that placed arrays keep, and its errors.
#include "nn/placement/filter_shard.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "nn/layers/mlp.h"
#include "sharding/operations.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"
#include "tests/nn/support.h"

namespace tessera::nn::filter_shard_test {
namespace {

using testing::expect_error;

struct Layer {
  Mlp mlp;
};

struct Model {
  std::vector<Layer> layers;
  std::optional<Param> positions;
  Array scale;

  static Model init(const Key& key, int64_t embed, int64_t hidden) {
    Model model{.layers = {}, .positions = Param{normal(key, {4, embed}), {none, "embed"}}, .scale = ones({})};
    for (const Key& k : split(key, 3)) model.layers.push_back({Mlp::init(k, {"embed", embed}, {"hidden", hidden})});
    return model;
  }
};

Mesh mesh() { return make_mesh({{"data", 2}, {"model", 2}}); }
std::string spec_of(const Array& x) { return x.sharding().spec().to_string(); }

TEST(FilterShard, places_by_names) {
  const MeshRules mesh_rules(mesh(), {{"hidden", "model"}, {"embed", replicated}});
  const Model model = filter_shard(Model::init(Key(0), 4, 8), mesh_rules);
  const Mlp& mlp = model.layers[2].mlp;
  EXPECT_EQ(spec_of(mlp.up.kernel), "P(None, 'model')");
  EXPECT_EQ(spec_of(mlp.up.bias->value), "P('model')");
  EXPECT_EQ(spec_of(mlp.down.kernel), "P('model')");
  EXPECT_EQ(spec_of(mlp.down.bias->value), "P()");
  EXPECT_EQ(spec_of(model.positions->value), "P()");
  EXPECT_EQ(spec_of(model.scale), "P()");
}

TEST(FilterShard, stamps_the_path_and_the_layout) {
  const MeshRules mesh_rules(mesh(), {{"hidden", "model"}, {"embed", replicated}});
  const Model model = filter_shard(Model::init(Key(0), 4, 8), mesh_rules);
  EXPECT_EQ(model.layers[2].mlp.up.kernel.value.path(), "layers.2.mlp.up.kernel");
  EXPECT_EQ(model.scale.path(), "scale");
}

TEST(FilterShard, leaves_its_argument_as_it_was) {
  const MeshRules mesh_rules(mesh(), {{"hidden", "model"}, {"embed", replicated}});
  const Model model = Model::init(Key(0), 4, 8);
  (void)filter_shard(model, mesh_rules);
  EXPECT_TRUE(model.layers[0].mlp.up.kernel.value.is_lazy());
  EXPECT_FALSE(model.layers[0].mlp.up.kernel.value.is_committed());
}

TEST(FilterShard, places_all_alike) {
  const Model model = filter_shard(Model::init(Key(0), 4, 8), NamedSharding(mesh(), P{}));
  for (const Leaf& leaf : leaves(model)) {
    EXPECT_EQ(spec_of(*leaf.value), "P()") << leaf.path;
    EXPECT_EQ(leaf.value->path(), leaf.path);
  }
}

TEST(FilterShard, places_by_path_and_size) {
  const auto choose = [](const std::string& path, const Array& x) {
    const bool cut = path.ends_with("kernel") && x.size() >= 32;
    return NamedSharding(mesh(), cut ? P{{"data", "model"}} : P{});
  };
  const Model model = filter_shard(Model::init(Key(0), 4, 8), choose);
  EXPECT_EQ(spec_of(model.layers[0].mlp.up.kernel), "P(('data', 'model'))");
  EXPECT_EQ(spec_of(model.layers[0].mlp.up.bias->value), "P()");
  EXPECT_EQ(model.layers[1].mlp.up.kernel.value.path(), "layers.1.mlp.up.kernel");
}

TEST(FilterShard, places_by_what_is_known_of_a_leaf) {
  const auto choose = [](const std::string&, const Leaf& leaf) {
    return NamedSharding(mesh(), leaf.is_param() && leaf.axes->at(0) == AxisName("hidden") ? P{"model"} : P{});
  };
  const Model model = filter_shard(Model::init(Key(0), 4, 8), choose);
  EXPECT_EQ(spec_of(model.layers[0].mlp.down.kernel), "P('model')");
  EXPECT_EQ(spec_of(model.layers[0].mlp.up.kernel), "P()");
  EXPECT_EQ(spec_of(model.scale), "P()");
}

TEST(FilterShard, moves_what_is_placed_already) {
  const MeshRules tp(mesh(), {{"hidden", "model"}, {"embed", replicated}});
  const MeshRules fsdp(mesh(), {{"hidden", replicated}, {"embed", "data"}});
  const Model first = filter_shard(Model::init(Key(0), 4, 8), tp);
  const Model second = filter_shard(first, fsdp);
  EXPECT_EQ(spec_of(second.layers[0].mlp.up.kernel), "P('data')");
  testing::expect_trees_near(second, first, 0, "moved");
}

TEST(FilterShard, absent_arrays_stay_absent) {
  const MeshRules mesh_rules(mesh(), {{"embed", replicated}});
  Linear layer{.kernel = {Array(), {"embed", "nowhere"}}, .bias = Param{ones({4}), {"embed"}}};
  layer = filter_shard(layer, mesh_rules);
  EXPECT_TRUE(layer.kernel.value.is_absent());
  EXPECT_TRUE(layer.bias->value.is_committed());
  EXPECT_TRUE(filter_shard(layer, NamedSharding(mesh(), P{})).kernel.value.is_absent());
}

TEST(FilterShard, a_params_own_rules_come_first) {
  const MeshRules mesh_rules(mesh(), {{"hidden", "model"}, {"embed", replicated}});
  Linear layer = Linear::init(Key(0), {"embed", 4}, {"hidden", 8});
  layer.kernel.rules = {{"hidden", "data"}};
  layer = filter_shard(layer, mesh_rules);
  EXPECT_EQ(spec_of(layer.kernel), "P(None, 'data')");
  EXPECT_EQ(spec_of(layer.bias->value), "P('model')");
}

TEST(FilterShard, places_by_rules_of_path_and_size) {
  const MeshRules mesh_rules(mesh(), {{ParamPattern{"layers.*.mlp.up.**"}, P{none, "model"}},
                                      {ParamPattern{"**.bias"}, replicated},
                                      {"embed", "data"},
                                      {ParamPattern{}, replicated}});
  const Model model = filter_shard(Model::init(Key(0), 4, 8), mesh_rules);
  EXPECT_EQ(spec_of(model.layers[2].mlp.up.kernel), "P(None, 'model')");
  EXPECT_EQ(spec_of(model.layers[2].mlp.up.bias->value), "P()");
  EXPECT_EQ(spec_of(model.layers[2].mlp.down.kernel), "P(None, 'data')");
  EXPECT_EQ(spec_of(model.scale), "P()");
}

TEST(FilterShard, fsdp_divides_what_is_large) {
  const MeshRules mesh_rules =
      fsdp(mesh(), "data", {.min_size = 32, .rules = {{"hidden", "model"}, {"embed", replicated}}});
  const Model model = filter_shard(Model::init(Key(0), 4, 8), mesh_rules);
  EXPECT_EQ(spec_of(model.layers[0].mlp.up.kernel), "P('data', 'model')");
  EXPECT_EQ(spec_of(model.layers[0].mlp.up.bias->value), "P('model')");
  EXPECT_EQ(spec_of(model.layers[0].mlp.down.bias->value), "P()");
  EXPECT_EQ(spec_of(model.positions->value), "P()");
  const Model plain = filter_shard(Model::init(Key(0), 4, 8), fsdp(mesh(), "data", {.min_size = 1}));
  EXPECT_EQ(spec_of(plain.layers[0].mlp.up.kernel), "P(None, 'data')") << "the longest dim";
  EXPECT_EQ(spec_of(plain.positions->value), "P('data')");
  testing::expect_error(ErrorKind::unknown_axis,
                        "[fsdp] \"fsdp\" given, expected an axis of the mesh (data=2, model=2).",
                        [] { fsdp(mesh(), "fsdp"); });
}

TEST(FilterShard, activations_follow_rules_of_their_own) {
  const MeshRules mesh_rules(mesh(),
                             {{"batch", "data"}, {"embed", "data"}, {"hidden", "model"}, {ParamPattern{}, P{"data"}}},
                             {.activations = {{"embed", replicated}}});
  const Mlp mlp = filter_shard(Mlp::init(Key(0), {"embed", 4}, {"hidden", 8}), mesh_rules);
  EXPECT_EQ(spec_of(mlp.up.kernel), "P('data', 'model')");
  const Array x = device_put(ones({4, 4}), Axes{"batch", "embed"}, mesh_rules);
  EXPECT_EQ(spec_of(x), "P('data')");
  EXPECT_EQ(spec_of(with_sharding_constraint(mlp(x), Axes{none, "embed"})), "P()");
}

// ---- errors ---------------------------------------------------------------------------------------------------------

TEST(FilterShardErrors, a_dim_that_does_not_divide) {
  const MeshRules mesh_rules(make_mesh({{"model", 5}}), {{"hidden", "model"}, {"embed", replicated}});
  Model model;
  model.scale = ones({});
  for (int i = 0; i < 3; ++i)
    model.layers.push_back({Mlp::init(Key(i), {"embed", 768}, {"hidden", i == 2 ? 3072 : 20})});
  expect_error(
      ErrorKind::not_divisible,
      "[filter_shard] layers.2.mlp.up.kernel: dim 1 \"hidden\" = 3072 is not divisible by mesh axis \"model\" = 5. "
      "Change the dim, Rules{\"hidden\"} or the mesh. With Uneven::pad the dim is padded.",
      [&] { (void)filter_shard(model, mesh_rules); });
}

TEST(FilterShardErrors, a_sharding_that_does_not_fit_says_where) {
  testing::expect_error_with(
      ErrorKind::not_divisible, {"[filter_shard] up.kernel: dim 0 of (3, 8) = 3 is not divisible", "\"model\" = 2"},
      [] { (void)filter_shard(Mlp::init(Key(0), {"embed", 3}, {"hidden", 8}), NamedSharding(mesh(), P{"model"})); });
  testing::expect_error_with(ErrorKind::rank_mismatch, {"[filter_shard] up.bias: P("}, [] {
    (void)filter_shard(Mlp::init(Key(0), {"embed", 4}, {"hidden", 8}), NamedSharding(mesh(), P{"data", "model"}));
  });
  testing::expect_error_with(ErrorKind::invalid_argument,
                             {"[filter_shard] up.kernel: P(", "given: a parameter is sharded or replicated"}, [] {
                               const NamedSharding pending(mesh(), P{}.unreduced({"data"}));
                               (void)filter_shard(Mlp::init(Key(0), {"embed", 4}, {"hidden", 8}), pending);
                             });
}

TEST(FilterShardErrors, a_tree_of_one_array_has_no_path_to_name) {
  expect_error(
      ErrorKind::not_divisible,
      "[filter_shard] dim 0 of (3) = 3 is not divisible by mesh axis \"data\" = 2. Change the spec, the mesh or "
      "the dim. With Uneven::pad its blocks are padded.",
      [] { (void)filter_shard(ones({3}), NamedSharding(mesh(), P{"data"})); });
}

TEST(FilterShardErrors, one_array_in_two_places) {
  Mlp mlp = Mlp::init(Key(0), {"embed", 4}, {"hidden", 4});
  mlp.down.kernel.value = mlp.up.kernel.value;
  const MeshRules mesh_rules(mesh(), {{"hidden", "model"}, {"embed", replicated}});
  const auto message =
      "[filter_shard] up.kernel and down.kernel are one and the same array, which would be trained twice. Keep it in "
      "one field and use that one in both places (a tied head is embedding.attend(x)), or make two arrays.";
  expect_error(ErrorKind::invalid_argument, message, [&] { (void)filter_shard(mlp, mesh_rules); });
  expect_error(ErrorKind::invalid_argument, message, [&] { (void)filter_shard(mlp, NamedSharding(mesh(), P{})); });
}

}  // namespace
}  // namespace tessera::nn::filter_shard_test
