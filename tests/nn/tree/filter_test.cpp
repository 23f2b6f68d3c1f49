// Filters, and trees that they split and combine.
#include "nn/tree/filter.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "sharding/operations.h"
#include "tests/nn/support.h"

namespace tessera::nn::filter_test {
namespace {

using testing::expect_error;
using Paths = std::vector<std::string>;

struct Dense {
  Param kernel{zeros({4, 2}), {"embed", "hidden"}};
  std::optional<Param> bias = Param{zeros({2}), {"hidden"}};
};

struct Statistics {
  Param scale{zeros({2}, bfloat16), {"hidden"}};
  Buffer mean{zeros({2}), {"hidden"}};
  Buffer count{zeros({}, int32), {}};
};

struct Model {
  std::vector<Dense> layers{3};
  Statistics norm;
  NamedArray ids{"batch"};
  Array steps = zeros({}, int32);
  Param absent;
};

Paths taken(const Filter& filter) {
  Model model;
  model.ids = zeros({4}, int32);
  Paths paths;
  for (const Leaf& leaf : leaves(model))
    if (filter(leaf)) paths.push_back(leaf.path);
  return paths;
}

TEST(Filter, ReadyOnes) {
  EXPECT_EQ(taken({}).size(), 12u);
  EXPECT_EQ(taken(is_array).size(), 11u);
  EXPECT_EQ(taken(!is_array), (Paths{"absent"}));
  EXPECT_EQ(taken(is_inexact_array && !by_path("layers.**")), (Paths{"norm.scale", "norm.mean"}));
  EXPECT_EQ(taken(is_param && !by_path("layers.**")), (Paths{"norm.scale", "absent"}));
  EXPECT_EQ(taken(is_buffer), (Paths{"norm.mean", "norm.count"}));
  EXPECT_EQ(taken(by_kind(Kind::array)), (Paths{"steps"}));
  EXPECT_EQ(taken(by_kind(Kind::named_array)), (Paths{"ids"}));
  EXPECT_EQ(taken(is_trainable && by_path("norm.*")), (Paths{"norm.scale"}));
  EXPECT_EQ(taken(by_axis("batch") || by_axis("embed")),
            (Paths{"layers.0.kernel", "layers.1.kernel", "layers.2.kernel", "ids"}));
  EXPECT_EQ(taken(by_axis("hidden") && by_path("layers.1.**")), (Paths{"layers.1.kernel", "layers.1.bias"}));
  EXPECT_EQ(taken([](const std::string& path, const Array& x) { return path == "steps" || x.is_absent(); }),
            (Paths{"steps", "absent"}));
}

TEST(Filter, PatternsOfPaths) {
  struct Row {
    std::string pattern;
    Paths matched, others;
  };
  const Row rows[] = {
      {"layers.*.mlp.**",
       {"layers.0.mlp.up.kernel", "layers.12.mlp.b", "layers.0.mlp"},
       {"layers.mlp.up", "a.layers.0.mlp.b", "layers.0.mlp2.b"}},
      {"**.bias", {"bias", "head.bias", "layers.0.attn.q.bias"}, {"bias.value", "rebias", "head.bias2"}},
      {"layers.*.norm*", {"layers.0.norm", "layers.0.norm1"}, {"layers.0.norm1.scale", "layers.0.xnorm"}},
      {"head", {"head"}, {"head.kernel", "heads", ""}},
      {"head.**", {"head", "head.kernel", "head.a.b"}, {"heads.kernel"}},
      {"**", {"", "a", "a.b.c"}, {}},
      {"*", {"a", "kernel"}, {"", "a.b"}},
      {"**.layers.**.kernel", {"layers.kernel", "x.layers.0.mlp.kernel"}, {"x.layer.0.kernel", "layers.kernel.0"}},
      {"*_proj.w*", {"q_proj.w", "_proj.weight"}, {"q_proj.bias", "q_proj"}},
      {"", {""}, {"a"}},
  };
  for (const auto& [pattern, matched, others] : rows) {
    for (const std::string& path : matched) EXPECT_TRUE(path_matches(path, pattern)) << pattern << ' ' << path;
    for (const std::string& path : others) EXPECT_FALSE(path_matches(path, pattern)) << pattern << ' ' << path;
  }
}

TEST(Filter, WhatItDoesNotTakeIsAbsent) {
  const Model model;
  const Model kernels = filter(model, by_path("**.kernel"));
  EXPECT_TRUE(kernels.layers[1].kernel.value.is_same(model.layers[1].kernel.value));
  EXPECT_TRUE(kernels.layers[1].bias->value.is_absent());
  EXPECT_EQ(kernels.layers[1].bias->axes.to_string(), "(hidden)");
  EXPECT_TRUE(kernels.norm.mean.value.is_absent());
  EXPECT_FALSE(model.norm.mean.value.is_absent());
}

TEST(Partition, CombineIsItsInverse) {
  const Model model;
  for (const Filter& f :
       {Filter(), !Filter(), Filter(is_param), by_axis("embed"), is_buffer || by_path("layers.0.**")}) {
    auto [taken, rest] = partition(model, f);
    for (const Model& whole : {combine(taken, rest), combine(rest, taken)}) {
      const Leaves a = leaves(model), b = leaves(whole), t = leaves(taken), r = leaves(rest);
      for (size_t i = 0; i < a.size(); ++i) {
        EXPECT_TRUE(a[i].value->is_same(*b[i].value)) << a[i].path;
        EXPECT_TRUE(t[i].value->is_absent() || r[i].value->is_absent()) << a[i].path;
        EXPECT_EQ(f(a[i]) && is_array(a[i]), is_array(t[i])) << a[i].path;
      }
    }
  }
}

TEST(Combine, TakesTheFirstThatIsThere) {
  const Dense a, b;
  const Dense both = combine(filter(a, by_path("bias")), b, a);
  EXPECT_TRUE(both.bias->value.is_same(a.bias->value));
  EXPECT_TRUE(both.kernel.value.is_same(b.kernel.value));
}

TEST(Combine, TreesOfOneStructure) {
  Model model, shorter;
  shorter.layers.pop_back();
  const std::string cure =
      " in its place, expected trees of one structure. Compare what they were made from: lengths of vectors, "
      "optionals, alternatives of variants, keys of maps.";
  expect_error(ErrorKind::invalid_argument, "[combine] layers.2.kernel: the other tree has norm.scale" + cure,
               [&] { combine(model, shorter); });
  Dense whole, bare{.bias = {}};
  expect_error(ErrorKind::invalid_argument, "[combine] bias: the other tree has nothing more" + cure,
               [&] { combine(whole, bare); });
  expect_error(ErrorKind::invalid_argument, "[combine] bias: the other tree has nothing more" + cure,
               [&] { combine(bare, whole); });
}

}  // namespace
}  // namespace tessera::nn::filter_test
