// Meshes, specs and shardings: the block of each device, and printed types.
#include "sharding/placement/named_sharding.h"

#include <gtest/gtest.h>

#include <sstream>

#include "sharding/placement/mesh_rules.h"
#include "sharding/placement/type.h"
#include "tests/sharding/expect_error.h"

namespace tessera::named_sharding_test {
namespace {

TEST(MeshTest, EqualMeshesAreOne) {
  const Mesh a = make_mesh({{"data", 4}, {"model", 2}});
  EXPECT_TRUE(a == make_mesh({{"data", 4}, {"model", 2}}, {.devices = {0, 1, 2, 3, 4, 5, 6, 7}}));
  EXPECT_FALSE(a == make_mesh({{"data", 4}, {"model", 2}}, {.private_replicas = true}));
  EXPECT_FALSE(a == make_mesh({{"model", 2}, {"data", 4}}));
  EXPECT_FALSE(a == make_mesh({{"data", 4}, {"model", 2}}, {.devices = {1, 0, 2, 3, 4, 5, 6, 7}}));
  EXPECT_EQ(a.to_string(), "data=4, model=2");
  EXPECT_EQ(a.size(), 8);
  EXPECT_EQ(a.size("model"), 2);
  EXPECT_FALSE(a.has_axis("pipe"));
  testing::expect_error(ErrorKind::unknown_axis, "[Mesh] mesh axis \"pipe\" is not in the mesh (data=4, model=2).",
                        [&] { a.size("pipe"); });
  EXPECT_EQ(Mesh().to_string(), "no mesh");
}

TEST(MeshTest, AxesAreReadFromText) {
  EXPECT_EQ(parse_mesh_axes("data=4,model=2"), (std::vector<MeshAxis>{{"data", 4}, {"model", 2}}));
  EXPECT_EQ(parse_mesh_axes("model=2,data=4:across,x=1"),
            (std::vector<MeshAxis>{{"model", 2}, {"data", 4, across}, {"x", 1}}));
  EXPECT_EQ(parse_mesh_axes(""), std::vector<MeshAxis>{});
  for (const char* wrong : {"=4", "data=", "data=x", "data=4,", "data=4,,model=2", "data=4 ,model", "data:across",
                            "data=:across", "=4:across", "data=4:far", "data=4:acros", "data=4across", ":across"})
    testing::expect_error(ErrorKind::invalid_argument, "expected name=size", [&] { parse_mesh_axes(wrong); });
  testing::expect_error(ErrorKind::invalid_argument,
                        "[parse_mesh_axes] the axis \"data:across\" in \"model=2,data:across=8\", expected a name of "
                        "letters, digits and underscores; the mark follows the size: data=8:across.",
                        [] { parse_mesh_axes("model=2,data:across=8"); });
  for (const char* wrong : {"data=4, model=2", "da-ta=2", "a b=2", "d.a=1", "\xc3\xa4=2"})
    testing::expect_error(ErrorKind::invalid_argument, "expected a name of letters, digits and underscores.",
                          [&] { parse_mesh_axes(wrong); });
}

// The output of std::cout << x.
template <class T>
std::string printed(const T& x) {
  std::ostringstream out;
  out << x;
  return out.str();
}

TEST(MeshTest, PlacementsArePrinted) {
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
  EXPECT_EQ(printed(mesh), "data=4, model=2");
  EXPECT_EQ(printed(mesh.axes()[1]), "model=2");
  EXPECT_EQ(printed(MeshAxis{"data", 8, across}), "data=8:across");
  EXPECT_EQ(printed(P{"data", none}), "P('data', None)");
  EXPECT_EQ(printed(NamedSharding(mesh, P{"data"})), NamedSharding(mesh, P{"data"}).to_string());
  EXPECT_EQ(printed(Axis{"embed", 512}), "embed=512");
  EXPECT_EQ(printed(Axis{"embed"}), "embed");
  EXPECT_EQ(printed(Axes{"embed", none, mesh_axis("model")}), "(embed, none, @model)");
  EXPECT_EQ(printed(AxisName("embed")), "embed");
  EXPECT_EQ(printed(Rule{"hidden", "model"}), "\"hidden\" -> \"model\"");
  EXPECT_EQ(printed(ParamPattern{.min_size = 8}), "** of at least 8 elements");
  EXPECT_EQ(printed(bfloat16), "bfloat16");
  EXPECT_EQ(printed(Shape{8, 4}), "(8, 4)");
  const Rules rules = {{"batch", "data"}, {"hidden", "model"}};
  EXPECT_EQ(printed(MeshRules(mesh, rules)), "data=4, model=2; rules \"batch\" -> \"data\", \"hidden\" -> \"model\"");
  EXPECT_EQ(printed(MeshRules(mesh, {{"embed", "data"}}, {.activations = {{"embed", replicated}}})),
            "data=4, model=2; rules \"embed\" -> \"data\"; rules of activations \"embed\" -> replicated");
}

TEST(PartitionSpecTest, PrintsAndComparesAsJaxDoes) {
  EXPECT_EQ((P{"data", none, {"x", "model"}}).to_string(), "P('data', None, ('x', 'model'))");
  EXPECT_EQ(P{}.to_string(), "P()");
  EXPECT_EQ((P{"a"}.unreduced({"b"}).reduced({"c"})).to_string(), "P('a', unreduced={'b'}, reduced={'c'})");
  EXPECT_EQ((P{"a", none, none}), (P{"a"}));
  EXPECT_EQ((P{{"a"}}), (P{"a"}));
  EXPECT_NE((P{{"a", "b"}}), (P{{"b", "a"}}));
  EXPECT_NE((P{none, "a"}), (P{"a"}));
  EXPECT_EQ(P{}.unreduced({"a", "b"}), P{}.unreduced({"b", "a"}));
  EXPECT_NE(P{}.unreduced({"a"}), P{}.reduced({"a"}));
}

// Each device's block and its replica id, from jax.sharding.NamedSharding.
TEST(NamedShardingTest, PlacesAsJaxDoes) {
  struct Case {
    std::vector<MeshAxis> axes;
    PartitionSpec spec;
    Shape shape, shard;
    std::vector<IndexRanges> blocks;
    std::vector<int> replicas;
  };
  using R = IndexRanges;
  const Case cases[] = {
      {{{"x", 1}}, P{"x"}, {4}, {4}, {R{{0, 4}}}, {0}},
      {{{"x", 1}}, P{}, {}, {}, {R{}}, {0}},
      {{{"x", 2}}, P{"x"}, {1024}, {512}, {R{{0, 512}}, R{{512, 1024}}}, {0, 0}},
      {{{"x", 2}}, P{}, {1024}, {1024}, {R{{0, 1024}}, R{{0, 1024}}}, {0, 1}},
      {{{"x", 2}, {"y", 2}},
       P{none, "x"},
       {6, 4},
       {6, 2},
       {R{{0, 6}, {0, 2}}, R{{0, 6}, {0, 2}}, R{{0, 6}, {2, 4}}, R{{0, 6}, {2, 4}}},
       {0, 1, 0, 1}},
      {{{"x", 2}, {"y", 2}},
       P{"y", "x"},
       {6, 4},
       {3, 2},
       {R{{0, 3}, {0, 2}}, R{{3, 6}, {0, 2}}, R{{0, 3}, {2, 4}}, R{{3, 6}, {2, 4}}},
       {0, 0, 0, 0}},
      {{{"x", 2}, {"y", 2}}, P{{"y", "x"}}, {8}, {2}, {R{{0, 2}}, R{{4, 6}}, R{{2, 4}}, R{{6, 8}}}, {0, 0, 0, 0}},
      {{{"x", 2}, {"y", 2}}, P{{"x", "y"}}, {8}, {2}, {R{{0, 2}}, R{{2, 4}}, R{{4, 6}}, R{{6, 8}}}, {0, 0, 0, 0}},
      {{{"a", 2}, {"b", 2}, {"c", 2}},
       P{none, {"c", "a"}},
       {1, 4},
       {1, 1},
       {R{{0, 1}, {0, 1}}, R{{0, 1}, {2, 3}}, R{{0, 1}, {0, 1}}, R{{0, 1}, {2, 3}}, R{{0, 1}, {1, 2}},
        R{{0, 1}, {3, 4}}, R{{0, 1}, {1, 2}}, R{{0, 1}, {3, 4}}},
       {0, 0, 1, 1, 0, 0, 1, 1}},
  };
  for (const Case& c : cases) {
    const NamedSharding s(make_mesh(c.axes), c.spec);
    SCOPED_TRACE(s.mesh().to_string() + " " + c.spec.to_string());
    EXPECT_EQ(s.shard_shape(c.shape), c.shard);
    EXPECT_EQ(s.devices_indices_map(c.shape), c.blocks);
    EXPECT_EQ(s.replica_ids(c.shape), c.replicas);
  }
}

TEST(NamedShardingTest, IsInterned) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 1}});
  const NamedSharding s(mesh, P{"a"});
  EXPECT_TRUE(s == NamedSharding(mesh, P{"a", none}));
  EXPECT_FALSE(s.is_spelled_like(NamedSharding(mesh, P{"a", none})));
  EXPECT_FALSE(s == NamedSharding(mesh, P{{"a", "b"}}));
  EXPECT_TRUE(s.is_equivalent_to(NamedSharding(mesh, P{{"a", "b"}}), 1));
  EXPECT_TRUE(NamedSharding(mesh, P{"b"}).is_fully_replicated());
  EXPECT_FALSE(s.is_fully_replicated());
  EXPECT_FALSE(NamedSharding(mesh, P{}.unreduced({"a"})).is_fully_replicated());
}

TEST(NamedShardingTest, EquivalenceIsAboutBlocks) {
  const Mesh wide = make_mesh({{"x", 2}, {"y", 4}}), flat = make_mesh({{"x", 8}}),
             other = make_mesh({{"data", 4}, {"model", 2}});
  const auto equivalent = [](Mesh a, PartitionSpec p, Mesh b, PartitionSpec q, int ndim) {
    return NamedSharding(a, p).is_equivalent_to(NamedSharding(b, q), ndim);
  };
  EXPECT_TRUE(equivalent(wide, P{}, flat, P{}, 2));
  EXPECT_TRUE(equivalent(wide, P{{"x", "y"}}, flat, P{"x"}, 1));
  EXPECT_FALSE(equivalent(wide, P{{"y", "x"}}, flat, P{"x"}, 1));
  EXPECT_FALSE(equivalent(wide, P{"x"}, other, P{"data"}, 1));
  EXPECT_FALSE(equivalent(wide, P{"x"}, wide, P{none, "x"}, 2));
  EXPECT_FALSE(equivalent(wide, P{}.unreduced({"x"}), other, P{}.unreduced({"data"}), 1));
  EXPECT_TRUE(equivalent(wide, P{none, none}.unreduced({"x"}), wide, P{}.unreduced({"x"}), 1));
  EXPECT_FALSE(equivalent(wide, P{}.unreduced({"x"}), wide, P{}, 1));
}

TEST(TypeTest, IsPrintedAsInJax) {
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}, {"pipe", 2}, {"one", 1}});
  const auto text = [&](DType dtype, const Shape& shape, const PartitionSpec& spec) {
    return detail::placed_type(dtype, shape, NamedSharding(mesh, spec))->to_string();
  };
  EXPECT_EQ(text(float32, {8, 4}, P{"data", "model"}.unreduced({"pipe"})), "float32[8@data,4@model]{U:pipe}");
  EXPECT_EQ(text(bfloat16, {8, 4}, P{{"model", "data"}}.reduced({"pipe"})), "bfloat16[8@(model,data),4]{R:pipe}");
  EXPECT_EQ(text(int32, {}, P{}.unreduced({"pipe", "data"}).reduced({"model"})), "int32[]{U:data,pipe R:model}");
  EXPECT_EQ(text(float64, {3}, P{"one"}), "float64[3]");
  EXPECT_EQ(detail::uncommitted_type(boolean, {2, 3})->to_string(), "bool[2,3]");
}

TEST(TypeTest, IsInternedAndKnowsItsBlock) {
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
  const auto* type = detail::placed_type(float32, {8, 6}, NamedSharding(mesh, P{"data", "model"}));
  EXPECT_EQ(type, detail::placed_type(float32, {8, 6}, NamedSharding(mesh, P{"data", "model"})));
  EXPECT_NE(type, detail::placed_type(float64, {8, 6}, NamedSharding(mesh, P{"data", "model"})));
  EXPECT_EQ(type->local, (Shape{2, 3}));
  EXPECT_EQ(type->bytes, 24);
  EXPECT_EQ(type->elements, 48);
  EXPECT_TRUE(detail::sharding_of(type) == NamedSharding(mesh, P{"data", "model"}));
}

}  // namespace
}  // namespace tessera::named_sharding_test
