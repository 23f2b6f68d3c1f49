// diff_placement, and the folding of repeated layers that it shares with tables and explanations.
#include "nn/placement/diff.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "nn/layers/mlp.h"
#include "nn/placement/filter_shard.h"
#include "nn/placement/path_folding.h"
#include "sharding/operations.h"
#include "tests/nn/support.h"

namespace tessera::nn::diff_test {
namespace {

struct Model {
  std::vector<Mlp> layers;

  static Model init(int n) {
    Model model;
    for (int i = 0; i < n; ++i) model.layers.push_back(Mlp::init(Key(i), {"embed", 8}, {"hidden", 16}));
    return model;
  }
};

MeshRules mesh_rules(Rules rules) { return MeshRules(make_mesh({{"data", 4}, {"model", 2}}), std::move(rules)); }

TEST(DiffPlacement, says_what_lies_elsewhere) {
  const auto before = placement_table(Model::init(3), mesh_rules({{"hidden", "model"}, {"embed", replicated}}));
  const auto after = placement_table(Model::init(3), mesh_rules({{"hidden", "model"}, {"embed", "data"}}));
  EXPECT_EQ(
      diff_placement(before, after).to_text(),
      "~ layers.{0..2}.up.kernel: spec P(None, 'model') -> P('data', 'model'); bytes/device 256 -> 64; replicas 4 "
      "-> 1\n"
      "~ layers.{0..2}.down.kernel: spec P('model') -> P('model', 'data'); bytes/device 256 -> 64; replicas 4 -> 1\n"
      "~ layers.{0..2}.down.bias: spec P() -> P('data'); bytes/device 32 -> 8; replicas 8 -> 2\n"
      "bytes per device: 1,728 -> 504\n");
  EXPECT_EQ(diff_placement(before, before).to_text(), "");
  EXPECT_TRUE(diff_placement(after, after).empty());
}

TEST(DiffPlacement, says_what_came_and_went) {
  const MeshRules same = mesh_rules({{"hidden", "model"}, {"embed", replicated}, {"vocab", replicated}});
  Model more = Model::init(2);
  const auto before = placement_table(named("model", more), same);
  Param head{ones({8}), {"vocab"}};
  more.layers.pop_back();
  const auto after = placement_table(named("model", more, "head", head), same);
  EXPECT_EQ(diff_placement(before, after).to_text(),
            "+ head: float32 (8), P(), bytes/device 32\n"
            "- model.layers.1.up.kernel: float32 (8, 16), P(None, 'model'), bytes/device 256\n"
            "- model.layers.1.up.bias: float32 (16), P('model'), bytes/device 32\n"
            "- model.layers.1.down.kernel: float32 (16, 8), P('model'), bytes/device 256\n"
            "- model.layers.1.down.bias: float32 (8), P(), bytes/device 32\n"
            "bytes per device: 1,152 -> 608\n");
}

TEST(DiffPlacement, compares_every_column) {
  const Array x = ones({8, 8}), y = ones({8, 4}, bfloat16);
  Param a{x, {"embed", "hidden"}}, b{y, {none, "hidden"}};
  const MeshRules other(make_mesh({{"data", 2}}), {{"hidden", replicated}});
  const auto before = placement_table(named("w", a), mesh_rules({{"hidden", "model"}, {"embed", "data"}}));
  const auto after = placement_table(named("w", b), other);
  EXPECT_EQ(diff_placement(before, after).to_text(),
            "~ w: axes (embed, hidden) -> (none, hidden); dtype float32 -> bfloat16; shape (8, 8) -> (8, 4); mesh "
            "(data=4, model=2) -> (data=2); spec P('data', 'model') -> P(); bytes/device 32 -> 64; replicas 1 -> 2\n"
            "bytes per device: 32 -> 64\n");
}

TEST(DiffPlacement, as_json) {
  const auto before = placement_table(Model::init(1), mesh_rules({{"hidden", "model"}, {"embed", replicated}}));
  const boost::json::object diff = boost::json::parse(diff_placement(PlacementTable({}), before).to_json()).as_object();
  ASSERT_EQ(diff.at("changes").as_array().size(), 4u);
  const boost::json::value& first = diff.at("changes").at(0);
  EXPECT_EQ(first.at("path"), "layers.0.up.kernel");
  EXPECT_TRUE(first.at("before").is_null());
  EXPECT_EQ(first.at("after"), boost::json::parse(before.to_json()).at("rows").at(0));
  EXPECT_EQ(diff.at("bytes_per_device"), (boost::json::value{{"before", 0}, {"after", 576}}));
}

TEST(FoldPaths, takes_together_what_differs_in_numbers_only) {
  const struct {
    std::vector<std::string> paths, looks, expected;
  } cases[] = {
      {{"layers.0.w", "layers.1.w", "layers.2.w"}, {"a", "a", "a"}, {"layers.{0..2}.w"}},
      {{"layers.0.w", "layers.1.w", "layers.3.w"}, {"a", "a", "a"}, {"layers.{0,1,3}.w"}},
      {{"layers.0.w", "layers.1.w", "layers.2.w"}, {"a", "b", "a"}, {"layers.{0,2}.w", "layers.1.w"}},
      {{"l.0.b", "l.0.w", "l.1.b", "l.1.w"}, {"a", "a", "a", "a"}, {"l.{0,1}.b", "l.{0,1}.w"}},
      {{"l.0.e.0", "l.0.e.1", "l.1.e.0", "l.1.e.1"}, {"", "", "", ""}, {"l.{0,1}.e.{0,1}"}},
      {{"l.0.e.0", "l.0.e.1", "l.1.e.0"}, {"", "", ""}, {"l.{0,1}.e.0", "l.0.e.1"}},
      {{"w", "b", "w1"}, {"", "", ""}, {"w", "b", "w1"}},
      {{"l.00.w", "l.01.w"}, {"", ""}, {"l.00.w", "l.01.w"}},
      {{}, {}, {}},
  };
  for (const auto& c : cases) {
    std::vector<std::string> lines;
    size_t members = 0;
    for (const detail::Folded& f : detail::fold_paths(c.paths, c.looks))
      lines.push_back(f.path), members += f.members.size();
    EXPECT_EQ(lines, c.expected);
    EXPECT_EQ(members, c.paths.size());
  }
}

TEST(FoldPaths, leaves_out_names_in_the_middle) {
  const std::string path = "model.layers.{0..79}.attn.query.kernel";
  EXPECT_EQ(detail::elided(path, 38), path);
  EXPECT_EQ(detail::elided(path, 37), "model.layers.{0..79}..query.kernel");
  EXPECT_EQ(detail::elided(path, 30), "model.layers..query.kernel");
  EXPECT_EQ(detail::elided(path, 20), "model..query.kernel");
  EXPECT_EQ(detail::elided(path, 14), "model..kernel");
  EXPECT_EQ(detail::elided(path, 8), "..kernel");
  EXPECT_EQ(detail::elided(path, 2), "el");
}

}  // namespace
}  // namespace tessera::nn::diff_test
