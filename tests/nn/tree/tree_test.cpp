// Trees: the visited leaves, their order and their paths.
#include "nn/tree/tree.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "sharding/operations.h"
#include "tests/nn/support.h"

namespace tessera::nn::tree_test {
namespace {

using testing::expect_error;
using testing::expect_near;
using testing::paths_of;
using Paths = std::vector<std::string>;

Param param(int64_t n = 2) { return {zeros({n}), {"embed"}}; }

struct Empty {};

enum class Kind { relu, gelu };

struct Linear {
  Param kernel = param();
  std::optional<Param> bias;
};

struct Norm {
  Param scale = param();
  double eps = 1e-5;
};

struct Statics {
  int count = 1;
  bool flag = true;
  float rate = 0.5f;
  Kind kind = Kind::gelu;
  std::string name = "name";
  Key key;
  Axis axis{"embed", 4};
  Axes axes{"embed", "hidden"};
  AxisName one = "embed";
  Rules rules{{"embed", replicated}};
  PartitionSpec spec{"data", none};
  std::vector<int64_t> sizes{1, 2};
  std::vector<bool> flags{true, false};
  std::array<double, 2> betas{0.9, 0.999};
  [[maybe_unused]] static inline int instances = 0;
};

struct Containers {
  std::vector<Linear> layers{2};
  std::vector<Norm> norms{2};
  std::array<Array, 2> arrays{zeros({1}), zeros({1})};
  std::optional<Linear> head = Linear{};
  std::optional<Linear> none;
  std::pair<Linear, Param> both{Linear{}, param()};
  std::tuple<Norm, int, Array> three{Norm{}, 1, zeros({1})};
  std::map<std::string, Norm> named{{"b", Norm{}}, {"a", Norm{}}};
  std::map<int, Norm> numbered{{10, Norm{}}, {9, Norm{}}};
  std::vector<std::variant<Linear, Norm, Empty>> mixed{Norm{}, Empty{}, Linear{}};
  Empty empty;
  Statics statics;
};

TEST(Tree, walks_fields_in_order_with_dotted_paths) {
  Containers tree;
  EXPECT_EQ(paths_of(leaves(tree)),
            (Paths{"layers.0.kernel", "layers.1.kernel", "norms.0.scale", "norms.1.scale", "arrays.0", "arrays.1",
                   "head.kernel", "both.0.kernel", "both.1", "three.0.scale", "three.2", "named.a.scale",
                   "named.b.scale", "numbered.9.scale", "numbered.10.scale", "mixed.0.scale", "mixed.2.kernel"}));
  EXPECT_EQ(paths_of(leaves(tree.layers, "stack")), (Paths{"stack.0.kernel", "stack.1.kernel"}));
}

TEST(Tree, a_leaf_points_into_the_tree) {
  Linear layer{.kernel = param(3), .bias = param(5)};
  const Leaves all = leaves(layer);
  ASSERT_EQ(paths_of(all), (Paths{"kernel", "bias"}));
  EXPECT_EQ(all[0].value, &layer.kernel.value);
  EXPECT_EQ(all[1].axes, &layer.bias->axes);
  EXPECT_TRUE(all[0].is_param());
  EXPECT_EQ(all[1].value->shape(), Shape{5});
}

struct Batch {
  NamedArray x{"batch", "embed"};
  Array weight;
};

TEST(Tree, arrays_with_and_without_names_are_leaves) {
  Batch batch;
  const Leaves all = leaves(batch);
  ASSERT_EQ(paths_of(all), (Paths{"x", "weight"}));
  EXPECT_EQ(all[0].axes->to_string(), "(batch, embed)");
  EXPECT_EQ(all[1].axes, nullptr);
  EXPECT_FALSE(all[0].is_param());
  Array alone = zeros({2});
  EXPECT_EQ(paths_of(leaves(alone, "loss")), Paths{"loss"});
}

TEST(Tree, trees_without_arrays_are_empty) {
  Empty empty;
  Statics statics;
  int number = 3;
  std::vector<Empty> many(3);
  EXPECT_TRUE(leaves(empty).empty());
  EXPECT_TRUE(leaves(statics).empty());
  EXPECT_TRUE(leaves(number).empty());
  EXPECT_TRUE(leaves(many).empty());
}

class Counter {
 public:
  explicit Counter(int64_t count) : count_(count) {}
  template <class Visit>
  void visit_fields(Visit&& visit) {
    visit("count", count_);
    visit("mean", mean_);
    visit("layers", layers_);
  }

 private:
  int64_t count_;
  Array mean_ = zeros({1});
  std::vector<Linear> layers_{1};
};

TEST(Tree, a_class_with_the_hook_shows_its_fields_itself) {
  std::vector<Counter> counters{Counter(1), Counter(2)};
  EXPECT_EQ(paths_of(leaves(counters)), (Paths{"0.mean", "0.layers.0.kernel", "1.mean", "1.layers.0.kernel"}));
}

TEST(Tree, local_and_nested_structs_are_walked) {
  struct Inner {
    Param w = param();
  };
  struct Outer {
    Inner first, second;
  } outer;
  EXPECT_EQ(paths_of(leaves(outer)), (Paths{"first.w", "second.w"}));
}

struct BracedDefaults {
  Param kernel{.value = zeros({2, 2}), .axes = {"embed", "hidden"}, .rules = {{"hidden", {"data", "model"}}}};
  std::vector<std::string> names{"a", "b"};
  Array x;
};

TEST(Tree, fields_may_have_braced_defaults) {
  BracedDefaults tree;
  EXPECT_EQ(paths_of(leaves(tree)), (Paths{"kernel", "x"}));
}

struct TwentyFive {
  Array a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, c0, c1, c2, c3, c4;
};
struct Hundred {
  int64_t a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, b0, b1, b2, b3, b4, b5, b6, b7, b8, b9, c0, c1, c2, c3, c4, c5, c6,
      c7, c8, c9, d0, d1, d2, d3, d4, d5, d6, d7, d8, d9, e0, e1, e2, e3, e4, e5, e6, e7, e8, e9, f0, f1, f2, f3, f4,
      f5, f6, f7, f8, f9, g0, g1, g2, g3, g4, g5, g6, g7, g8, g9, h0, h1, h2, h3, h4, h5, h6, h7, h8, h9, i0, i1, i2,
      i3, i4, i5, i6, i7, i8, i9, j0, j1, j2, j3, j4, j5, j6, j7, j8;
  Array last;
};

TEST(Tree, a_struct_may_have_a_hundred_fields) {
  TwentyFive some;
  Hundred many{};
  EXPECT_EQ(leaves(some).size(), 25u);
  EXPECT_EQ(paths_of(leaves(many)), Paths{"last"});
}

TEST(Tree, several_trees_go_under_names_of_their_own) {
  Linear model;
  Norm optimizer;
  Array loss;
  EXPECT_EQ(paths_of(named("model", model, "optimizer", optimizer, "loss", loss)),
            (Paths{"model.kernel", "optimizer.scale", "loss"}));
}

TEST(Tree, a_const_tree_is_walked_too) {
  const Linear layer;
  EXPECT_EQ(paths_of(leaves(layer)), Paths{"kernel"});
}

TEST(TreeMap, gives_a_copy_with_other_arrays) {
  const Linear layer{.kernel = {array<float>({1, 2}), {"embed"}}, .bias = Param{Array(), {"embed"}}};
  Paths seen;
  const Linear doubled = tree_map(
      [&](const std::string& path, const Array& x) {
        seen.push_back(path);
        return x * 2;
      },
      layer);
  EXPECT_EQ(seen, Paths{"kernel"});
  expect_near(doubled.kernel, array<float>({2, 4}), 0, "doubled");
  expect_near(layer.kernel, array<float>({1, 2}), 0, "the original");
  EXPECT_TRUE(doubled.bias->value.is_absent());
  EXPECT_EQ(doubled.kernel.axes.to_string(), "(embed)");
}

TEST(CheckDistinct, names_both_places_of_one_array) {
  Linear layer;
  layer.bias = layer.kernel;
  expect_error(ErrorKind::invalid_argument,
               "[value_and_grad] model.kernel and model.bias are one and the same array, which would be trained twice. "
               "Keep it in one field and use that one in both places (a tied head is embedding.attend(x)), or make two "
               "arrays.",
               [&] { check_distinct(named("model", layer), "value_and_grad"); });
}

TEST(CheckDistinct, absent_arrays_are_not_compared) {
  Linear layer{.kernel = {}, .bias = Param{}};
  check_distinct(leaves(layer), "value_and_grad");
}

TEST(Tree, BareArraysAreTheLeavesInOrder) {
  const auto same = [](auto& tree) {
    const Leaves with_paths = leaves(tree);
    const BareArrays bare = bare_arrays(tree);
    ASSERT_EQ(bare.arrays.size(), with_paths.size());
    for (size_t i = 0; i < with_paths.size(); ++i) EXPECT_EQ(bare.arrays[i], with_paths[i].value) << with_paths[i].path;
  };
  std::vector<std::map<std::string, Param>> tree(2);
  tree[0]["a"].value = zeros({2});
  tree[1]["b"].value = zeros({3});
  same(tree);
  std::tuple<std::optional<Array>, std::variant<Param, Buffer>> mixed{zeros({1}), Buffer{zeros({2}), {}}};
  same(mixed);
  auto other = tree;
  EXPECT_EQ(bare_arrays(tree).structure, bare_arrays(other).structure);
  other[1].clear(), other[1]["c"].value = zeros({3});
  EXPECT_NE(bare_arrays(tree).structure, bare_arrays(other).structure);
  auto active = mixed;
  std::get<1>(active) = Param{zeros({2}), {}};
  EXPECT_NE(bare_arrays(mixed).structure, bare_arrays(active).structure);
}

}  // namespace
}  // namespace tessera::nn::tree_test
