// placement_table: its numbers before and after placement, and its three output formats.
#include "nn/placement/table.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <sstream>

#include "nn/layers/embedding.h"
#include "nn/layers/mlp.h"
#include "nn/layers/norm.h"
#include "nn/placement/filter_shard.h"
#include "sharding/array/array_impl.h"
#include "sharding/operations.h"
#include "sharding/placement/mesh_impl.h"
#include "tests/nn/support.h"
#include "tests/sharding/allocations.h"

namespace tessera::nn::table_test {
namespace {

struct Model {
  Embedding embed;
  LayerNorm norm;
  Mlp mlp;
  Array scale;

  static Model init(const Key& key) {
    const auto [k1, k2] = split<2>(key);
    return {.embed = Embedding::init(k1, {"vocab", 16}, {"embed", 8}),
            .norm = LayerNorm::init({"norm", 8}),
            .mlp = Mlp::init(k2, {"embed", 8}, {"hidden", 16}),
            .scale = ones({}, bfloat16)};
  }
};

MeshRules two_by_two() {
  return MeshRules(make_mesh({{"data", 4}, {"model", 2}}),
                   {{"vocab", "model"}, {"hidden", "model"}, {"embed", "data"}, {"norm", replicated}});
}

TEST(PlacementTable, says_where_each_array_lies) {
  const Model model = filter_shard(Model::init(Key(0)), two_by_two());
  const PlacementTable table = placement_table(model);
  ASSERT_EQ(table.rows().size(), 8u);
  const PlacementRow expected{.path = "mlp.up.kernel",
                              .axes = std::vector<std::string>{"embed", "hidden"},
                              .spec = "P('data', 'model')",
                              .shape = {8, 16},
                              .shard_shape = {2, 8},
                              .dtype = float32,
                              .num_elements = 128,
                              .bytes = 512,
                              .bytes_per_device = 64,
                              .num_replicas = 1,
                              .mesh = {{"data", 4}, {"model", 2}},
                              .divided_over = {"data", "model"}};
  EXPECT_EQ(table.rows()[3], expected);
  EXPECT_EQ(table.rows()[1].spec, "P()");
  EXPECT_EQ(table.rows()[1].num_replicas, 8);
  EXPECT_EQ(table.rows()[4].num_replicas, 4);  // mlp.up.bias
  EXPECT_EQ(table.rows()[7].axes, std::nullopt);
  EXPECT_EQ(table.rows()[7].bytes_per_device, 2);
}

TEST(PlacementTable, sums_all_or_a_part) {
  const PlacementTable table = placement_table(Model::init(Key(0)), two_by_two());
  EXPECT_EQ(table.element_count(), 128 + 16 + 128 + 16 + 128 + 8 + 1);
  EXPECT_EQ(table.bytes(), 4 * (128 + 16 + 128 + 16 + 128 + 8) + 2);
  EXPECT_EQ(table.bytes_per_device("mlp"), 4 * (16 + 8 + 16 + 2));
  EXPECT_EQ(table.bytes_per_device("mlp.up"), 4 * (16 + 8));
  EXPECT_EQ(table.bytes_per_device("ml"), 0);
}

TEST(PlacementTable, is_the_same_before_and_after_placing) {
  for (const auto& [name, mesh_rules] : testing::strategies()) {
    Model model = Model::init(Key(0));
    const PlacementTable before = placement_table(model, mesh_rules);
    for (const Leaf& leaf : leaves(model)) EXPECT_TRUE(leaf.value->is_lazy()) << leaf.path;
    model = filter_shard(model, mesh_rules);
    EXPECT_EQ(before, placement_table(model)) << name;
    EXPECT_EQ(before, placement_table(model, mesh_rules)) << name;
    EXPECT_EQ(before.to_text(), placement_table(model).to_text()) << name;
  }
}

TEST(PlacementTable, counts_the_bytes_that_a_device_holds) {
  for (const auto& [name, mesh_rules] : testing::strategies()) {
    const Model model = filter_shard(Model::init(Key(0)), mesh_rules);
    const Leaves all = leaves(model);
    const PlacementTable table = placement_table(all);
    for (size_t i = 0; i < all.size(); ++i) {
      const auto& local = all[i].value->impl()->local;
      for (const at::Tensor& tensor : local)
        EXPECT_EQ(table.rows()[i].bytes_per_device, static_cast<int64_t>(tensor.nbytes()))
            << name << ' ' << all[i].path;
      int64_t copies = 0;
      for (const Shard& shard : all[i].value->addressable_shards())
        copies += shard.index == all[i].value->addressable_shards()[0].index;
      EXPECT_EQ(table.rows()[i].num_replicas, copies) << name << ' ' << all[i].path;
    }
  }
}

// Private replicas: each device has its own copy.
TEST(PlacementTable, counts_the_bytes_that_placing_allocates) {
  const Mesh mesh = make_mesh({{"fsdp", 8}}, {.private_replicas = true});
  const Param weight{zeros({1000, 1000}), {"in", "out"}};
  for (const auto& [mesh_rules, bytes] :
       {std::pair(MeshRules(mesh, {{ParamPattern{}, replicated}}), int64_t{4'000'000}),
        std::pair(fsdp(mesh, "fsdp"), int64_t{500'000})}) {
    const tessera::testing::Allocations allocations;
    const Param placed = filter_shard(weight, mesh_rules);
    EXPECT_EQ(placement_table(placed).bytes_per_device(), bytes);
    EXPECT_GE(allocations.peak(), 8 * bytes);
    // Unused bytes of the source value's allocation. A GPU's allocator may return up to a megabyte more than requested.
    const int64_t unused = mesh.impl()->device.is_cuda() ? 9 << 20 : 4096;
    EXPECT_LE(allocations.peak(), 8 * bytes + 4'000'000 + unused);
  }
}

// "400 MB become 50 MB per device."
TEST(PlacementTable, of_a_model_of_400_megabytes) {
  const Param weight{zeros({10000, 10000}), {"in", "out"}};
  const Mesh mesh = make_mesh({{"fsdp", 8}}, {.abstract = true});
  const MeshRules whole(mesh, {{"in", replicated}, {"out", replicated}});
  EXPECT_EQ(placement_table(filter_shard(weight, whole)).bytes_per_device(), 400'000'000);
  EXPECT_EQ(placement_table(filter_shard(weight, fsdp(mesh, "fsdp"))).bytes_per_device(), 50'000'000);
}

TEST(PlacementTable, of_arrays_on_no_mesh) {
  const Linear layer = Linear::init(Key(0), {"embed", 4}, {"hidden", 8});
  const PlacementTable table = placement_table(layer);
  EXPECT_EQ(table.rows()[0].spec, "uncommitted");
  EXPECT_EQ(table.rows()[0].shard_shape, (Shape{4, 8}));
  EXPECT_EQ(table.rows()[0].num_replicas, 1);
  EXPECT_EQ(table.bytes_per_device(), 4 * (32 + 8));
}

TEST(PlacementTable, leaves_absent_arrays_out) {
  const Linear layer{.kernel = {Array(), {"embed"}}, .bias = Param{ones({4}), {"embed"}}};
  const PlacementTable table = placement_table(layer);
  ASSERT_EQ(table.rows().size(), 1u);
  EXPECT_EQ(table.rows()[0].path, "bias");
  for (const PlacementRow& row : placement_table(layer).rows()) EXPECT_EQ(row.path, "bias");
}

TEST(PlacementTable, a_wrong_rule_is_an_error_with_the_path) {
  testing::expect_error_with(ErrorKind::unknown_axis, {"[placement_table] embed.tokens: dim 0 is named \"vocab\""}, [] {
    placement_table(Model::init(Key(0)), MeshRules(make_mesh({{"data", 2}}), {{"embed", replicated}}));
  });
}

TEST(PlacementTable, as_text) {
  const MeshRules mesh_rules(make_mesh({{"data", 4}, {"model", 2}}), {{"hidden", "model"}, {"embed", replicated}});
  Linear up = Linear::init(Key(0), {"embed", 512}, {"hidden", 2048}), down = up;
  down.bias = std::nullopt;
  down.kernel = {zeros({2, 3}), {mesh_axis("model"), none}};
  std::ostringstream out;
  up = filter_shard(up, mesh_rules);
  down = filter_shard(down, mesh_rules);
  Array count = zeros({}, int32);
  out << placement_table(named("up", up, "down", down, "count", count));
  EXPECT_EQ(out.str(),
            "path         axes           spec              shape        shard shape  dtype    bytes/device  replicas\n"
            "-------------------------------------------------------------------------------------------------------\n"
            "up.kernel    embed, hidden  P(None, 'model')  (512, 2048)  (512, 1024)  float32     2,097,152         4\n"
            "up.bias      hidden         P('model')        (2048)       (1024)       float32         4,096         4\n"
            "down.kernel  @model, none   P('model')        (2, 3)       (1, 3)       float32            12         4\n"
            "count                       uncommitted       ()           ()           int32               4         1\n"
            "-------------------------------------------------------------------------------------------------------\n"
            "4 arrays, 1,050,631 elements, 4,202,524 bytes; bytes per device:                    2,101,264\n"
            "over data=4: 0 bytes sharded, 4,202,520 replicated; 4.00 copies\n"
            "over model=2: 4,202,520 bytes sharded, 0 replicated; 1.00 copies\n"
            "all devices: 4.00 copies\n");
}

TEST(PlacementTable, as_markdown) {
  Linear layer = Linear::init(Key(0), {"embed", 4}, {"hidden", 8}, {.bias = false});
  EXPECT_EQ(placement_table(layer).to_markdown(),
            "| path | axes | spec | shape | shard shape | dtype | bytes/device | replicas |\n"
            "|---|---|---|---|---|---|---:|---:|\n"
            "| kernel | embed, hidden | uncommitted | (4, 8) | (4, 8) | float32 | 128 | 1 |\n"
            "\n1 array, 32 elements, 128 bytes; bytes per device: 128\n");
}

TEST(PlacementTable, as_json) {
  const PlacementTable table = placement_table(Model::init(Key(0)), two_by_two());
  const boost::json::object object = boost::json::parse(table.to_json()).as_object();
  EXPECT_EQ(object.at("arrays").as_int64(), 8);
  EXPECT_EQ(object.at("elements").as_int64(), table.element_count());
  EXPECT_EQ(object.at("bytes").as_int64(), table.bytes());
  EXPECT_EQ(object.at("bytes_per_device").as_int64(), table.bytes_per_device());
  const boost::json::array& rows = object.at("rows").as_array();
  ASSERT_EQ(rows.size(), 8u);
  const boost::json::value expected = boost::json::parse(R"json({
    "path": "mlp.up.kernel", "axes": ["embed", "hidden"], "spec": "P('data', 'model')", "shape": [8, 16],
    "shard_shape": [2, 8], "dtype": "float32", "elements": 128, "bytes": 512, "bytes_per_device": 64, "replicas": 1,
    "mesh": {"data": 4, "model": 2}, "divided_over": ["data", "model"]
  })json");
  EXPECT_EQ(rows[3], expected);
  EXPECT_TRUE(rows[7].as_object().at("axes").is_null());
  const boost::json::value& data = object.at("over_axes").at(0);
  EXPECT_EQ(data.at("axis"), "data");
  EXPECT_EQ(data.at("divided_bytes").as_int64(), 1568);
  EXPECT_EQ(data.at("whole_bytes").as_int64(), 130);
  EXPECT_DOUBLE_EQ(data.at("copies").as_double(), 4.0 * 298 / (4 * 200 + 98));
  EXPECT_EQ(parse_placement_table(table.to_json()), table);
  EXPECT_EQ(parse_placement_table(placement_table(Model::init(Key(0))).to_json()),
            placement_table(Model::init(Key(0))));
}

TEST(PlacementTable, other_text_than_its_own_is_refused) {
  const std::string row =
      R"({"path": "w", "axes": null, "spec": "P", "shape": [], "shard_shape": [], "dtype": "float32", "elements": 1,
          "bytes": 9223372036854775807, "bytes_per_device": 4, "replicas": 1, "mesh": {}, "divided_over": []})";
  const std::string too_large = "{\"rows\": [" + row + "," + row + "]}";
  const std::pair<const char*, const char*> wrong[] = {
      {"[]", ": [] given, expected an object."},
      {"{}", ": has no \"rows\"."},
      {"{\"rows\": 3}", ".rows: 3 given, expected an array."},
      {"{\"rows\": [{}]}", ".rows.0: has no \"axes\"."},
      {"{\"rows\": [{\"path\": \"w\", \"axes\": [\"embed\", 3]}]}", ".rows.0.axes.1: 3 given, expected a string."},
      {"{\"rows\": [{\"axes\": null, \"path\": \"w\", \"spec\": \"P()\", \"shape\": [1.5]}]}",
       ".rows.0.shape.0: 1.5E0 given, expected a whole number from 0 on."},
      {too_large.c_str(), ".rows.1: the rows up to here have more than 2^63 - 1 bytes."}};
  for (const auto& [text, place] : wrong)
    testing::expect_error_with(
        ErrorKind::invalid_file,
        {std::string("[parse_placement_table] the table") + place + " Was it written by PlacementTable::to_json?"},
        [text = text] { parse_placement_table(text); });
  testing::expect_error_with(ErrorKind::invalid_file, {"[parse_placement_table] the table: line 1"},
                             [] { parse_placement_table("rows"); });
}

// ---- formats for large trees

struct Deep {
  std::vector<Mlp> layers;

  static Deep init(int n) {
    Deep deep;
    for (int i = 0; i < n; ++i) deep.layers.push_back(Mlp::init(Key(i), {"embed", 8}, {"hidden", 16}));
    return deep;
  }
};

PlacementTable deep_table() {
  const Deep deep = Deep::init(12);
  Param head{ones({64, 8}), {"vocab", "embed"}};
  return placement_table(named("model", deep, "head", head), two_by_two());
}

TEST(PlacementTable, folds_repeated_layers) {
  EXPECT_EQ(deep_table().to_text({.fold = true}),
            "path                              arrays  axes           spec                shape    shard shape  d"
            "type    bytes/device  replicas\n"
            "----------------------------------------------------------------------------------------------------"
            "------------------------------\n"
            "model.layers.{0..11}.up.kernel        12  embed, hidden  P('data', 'model')  (8, 16)  (2, 8)       f"
            "loat32           768         1\n"
            "model.layers.{0..11}.up.bias          12  hidden         P('model')          (16)     (8)          f"
            "loat32           384         4\n"
            "model.layers.{0..11}.down.kernel      12  hidden, embed  P('model', 'data')  (16, 8)  (8, 2)       f"
            "loat32           768         1\n"
            "model.layers.{0..11}.down.bias        12  embed          P('data')           (8)      (2)          f"
            "loat32            96         2\n"
            "head                                   1  vocab, embed   P('model', 'data')  (64, 8)  (32, 2)      f"
            "loat32           256         1\n"
            "----------------------------------------------------------------------------------------------------"
            "------------------------------\n"
            "49 arrays, 3,872 elements, 15,488 bytes; bytes per device:                                          "
            "               2,272\n"
            "over data=4: 14,720 bytes sharded, 768 replicated; 1.15 copies\n"
            "over model=2: 15,104 bytes sharded, 384 replicated; 1.02 copies\n"
            "all devices: 1.17 copies\n");
}

TEST(PlacementTable, fits_a_width) {
  const PlacementTable table = deep_table();
  for (const size_t width : {60, 70, 80, 100, 120, 140})
    for (const bool fold : {false, true}) {
      std::istringstream lines(table.to_text({.width = width, .fold = fold}));
      bool has_bytes = false;
      for (std::string line; std::getline(lines, line);) {
        EXPECT_LE(line.size(), width) << line;
        has_bytes |= line.find("bytes/device") != std::string::npos;
      }
      EXPECT_TRUE(has_bytes) << width;
    }
}

TEST(PlacementTable, groups_by_module) {
  EXPECT_EQ(deep_table().to_text({.depth = 1}),
            "path   arrays  elements   bytes  bytes/device\n"
            "---------------------------------------------\n"
            "model      48     3,360  13,440         2,016\n"
            "head        1       512   2,048           256\n"
            "---------------------------------------------\n"
            "49 arrays, 3,872 elements, 15,488 bytes; bytes per device: 2,272\n"
            "over data=4: 14,720 bytes sharded, 768 replicated; 1.15 copies\n"
            "over model=2: 15,104 bytes sharded, 384 replicated; 1.02 copies\n"
            "all devices: 1.17 copies\n");
  EXPECT_EQ(deep_table().to_text({.fold = true, .depth = 3}),
            "path                  arrays  elements   bytes  bytes/device\n"
            "------------------------------------------------------------\n"
            "model.layers.{0..11}      48     3,360  13,440         2,016\n"
            "head                       1       512   2,048           256\n"
            "------------------------------------------------------------\n"
            "49 arrays, 3,872 elements, 15,488 bytes; bytes per device: 2,272\n"
            "over data=4: 14,720 bytes sharded, 768 replicated; 1.15 copies\n"
            "over model=2: 15,104 bytes sharded, 384 replicated; 1.02 copies\n"
            "all devices: 1.17 copies\n");
}

TEST(PlacementTable, sorts) {
  const auto paths = [](const std::string& text) {
    std::vector<std::string> names;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("model") || line.starts_with("head")) names.push_back(line.substr(0, line.find(' ')));
    return names;
  };
  const PlacementTable table = deep_table();
  EXPECT_EQ(paths(table.to_text({.depth = 1})), (std::vector<std::string>{"model", "head"}));
  EXPECT_EQ(paths(table.to_text({.depth = 1, .sort = SortBy::path})), (std::vector<std::string>{"head", "model"}));
  const auto by_path = paths(table.to_text({.depth = 3, .sort = SortBy::path}));
  ASSERT_EQ(by_path.size(), 13u);
  EXPECT_EQ(by_path[3], "model.layers.2");
  EXPECT_EQ(by_path[12], "model.layers.11");
  EXPECT_EQ(paths(table.to_text({.sort = SortBy::bytes}))[0], "head");
}

TEST(PlacementTable, as_markdown_in_other_formats) {
  EXPECT_EQ(deep_table().to_markdown({.depth = 1, .sort = SortBy::bytes}),
            "| path | arrays | elements | bytes | bytes/device |\n"
            "|---|---:|---:|---:|---:|\n"
            "| model | 48 | 3,360 | 13,440 | 2,016 |\n"
            "| head | 1 | 512 | 2,048 | 256 |\n"
            "\n"
            "49 arrays, 3,872 elements, 15,488 bytes; bytes per device: 2,272\n"
            "- over data=4: 14,720 bytes sharded, 768 replicated; 1.15 copies\n"
            "- over model=2: 15,104 bytes sharded, 384 replicated; 1.02 copies\n"
            "- all devices: 1.17 copies\n");
}

TEST(PlacementTable, sums_over_mesh_axes) {
  const PlacementTable table = deep_table();
  for (const AxisTotals& axis : table.over_axes()) {
    EXPECT_EQ(axis.divided_bytes + axis.whole_bytes, table.bytes()) << axis.axis.name;
    EXPECT_GE(axis.copies, 1);
    EXPECT_LE(axis.copies, static_cast<double>(axis.axis.size));
  }
  const double held = 8.0 * static_cast<double>(table.bytes_per_device());
  EXPECT_DOUBLE_EQ(table.replication(), held / static_cast<double>(table.bytes()));
  EXPECT_EQ(placement_table(Deep::init(1)).replication(), 1);
  EXPECT_TRUE(placement_table(Deep::init(1)).over_axes().empty());
}

TEST(PlacementTable, of_an_empty_tree) {
  struct Nothing {
  } nothing;
  EXPECT_EQ(placement_table(nothing).rows().size(), 0u);
  EXPECT_NE(placement_table(nothing).to_text().find("0 arrays, 0 elements"), std::string::npos);
}

}  // namespace
}  // namespace tessera::nn::table_test
