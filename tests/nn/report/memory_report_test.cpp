// memory_report: what lies at rest, and what a step takes beside it, measured.
#include "nn/report/memory_report.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "nn/layers/mlp.h"
#include "nn/placement/filter_shard.h"
#include "nn/placement/fsdp.h"
#include "nn/transformations/value_and_grad.h"
#include "sharding/operations.h"
#include "sharding/placement/mesh_impl.h"
#include "sharding/redistribution/device_put.h"
#include "tests/nn/support.h"

namespace tessera::nn::memory_report_test {
namespace {

Array squares(const Mlp& model, const Array& x) { return mean(square(model(x))); }

constexpr int64_t embed = 64, hidden = 256, rows = 32, parameters = 2 * embed * hidden + embed + hidden;

MemoryReport report_on(const Mesh& mesh) {
  const MeshRules mesh_rules = fsdp(mesh, "data", {.min_size = 1, .rules = {{"batch", "data"}, {"embed", replicated}}});
  const Mlp model = filter_shard(Mlp::init(Key(0), {"embed", embed}, {"hidden", hidden}), mesh_rules);
  const Array x = device_put(ones({rows, embed}), Axes{"batch", "embed"}, mesh_rules);
  return memory_report(named("model", model), [&] { return value_and_grad(squares)(model, x).second; });
}

TEST(MemoryReport, counts_what_lies_on_a_device) {
  const MemoryReport report = report_on(make_mesh({{"data", 8}}));
  EXPECT_EQ(report.at_rest, (std::vector<MemoryShare>{{"model", 4 * parameters, 4 * parameters / 8},
                                                      {"gradients", 4 * parameters, 4 * parameters / 8}}));
  EXPECT_EQ(report.bytes_per_device(), parameters);
  EXPECT_EQ(report.device_count(), 8);
}

// What the forward pass of this model keeps: the hidden layer before and after the nonlinearity.
TEST(MemoryReport, measures_activations_and_the_peak) {
  for (const bool private_replicas : {false, true}) {
    const MemoryReport report = report_on(make_mesh({{"data", 8}}, {.private_replicas = private_replicas}));
    EXPECT_EQ(report.of,
              private_replicas ? MemoryReport::Of::process_with_private_replicas : MemoryReport::Of::process);
    const int64_t kept = 2 * 4 * rows * hidden;
    EXPECT_GE(report.activation_bytes, kept);
    EXPECT_LE(report.activation_bytes, 2 * kept + (private_replicas ? 8 : 1) * 4 * embed * hidden);
    EXPECT_GE(report.peak_bytes, std::max<int64_t>(report.activation_bytes, 4 * parameters));
  }
}

TEST(MemoryReport, of_one_device_on_an_abstract_mesh) {
  const MemoryReport report = report_on(make_mesh({{"data", 8}}, {.abstract = true}));
  EXPECT_EQ(report.of, MemoryReport::Of::device);
  EXPECT_EQ(report.at_rest, report_on(make_mesh({{"data", 8}})).at_rest);
  const int64_t kept = 2 * 4 * rows * hidden / 8, weight = 4 * embed * hidden;
  EXPECT_GE(report.activation_bytes, kept + 2 * weight);  // a gathered weight, as it comes and as it is used
  EXPECT_LE(report.activation_bytes, 2 * kept + 3 * weight);
}

// "400 MB become 50 MB per device."
TEST(MemoryReport, of_a_model_of_400_megabytes) {
  Param weight{zeros({10000, 10000}), {"in", "out"}};
  for (const auto& [mesh_rules, bytes] :
       {std::pair(MeshRules(make_mesh({{"fsdp", 8}}, {.abstract = true}), {{"in", replicated}, {"out", replicated}}),
                  int64_t{400'000'000}),
        std::pair(fsdp(make_mesh({{"fsdp", 8}}, {.abstract = true}), "fsdp"), int64_t{50'000'000})}) {
    const Param placed = filter_shard(weight, mesh_rules);
    const MemoryReport report = memory_report(named("model", placed), [] {});
    EXPECT_EQ(report.bytes_per_device(), bytes);
    EXPECT_EQ(report.peak_bytes, 0);
  }
}

// The same, a hundredth of it, on devices that each have their own copy: what is allocated is what the table says.
TEST(MemoryReport, of_what_devices_hold) {
  const Mesh mesh = make_mesh({{"fsdp", 8}}, {.private_replicas = true});
  const Param weight{zeros({1000, 1000}), {"in", "out"}};
  for (const auto& [mesh_rules, bytes] :
       {std::pair(MeshRules(mesh, {{ParamPattern{}, replicated}}), int64_t{4'000'000}),
        std::pair(fsdp(mesh, "fsdp"), int64_t{500'000})}) {
    Param placed;
    const MemoryReport report =
        memory_report(named("nothing", placed), [&] { placed = filter_shard(weight, mesh_rules); });
    EXPECT_EQ(placement_table(placed).bytes_per_device(), bytes);
    EXPECT_GE(report.peak_bytes, 8 * bytes);
    // And the value that is copied to each; a GPU's allocator gives blocks of up to a megabyte more than asked for.
    const int64_t unused = mesh.impl()->device.is_cuda() ? 9 << 20 : 4096;
    EXPECT_LE(report.peak_bytes, 8 * bytes + 4'000'000 + unused);
  }
}

TEST(MemoryReport, a_step_that_returns_nothing_has_no_gradients) {
  const Mlp model =
      filter_shard(Mlp::init(Key(0), {"embed", 8}, {"hidden", 8}), fsdp(make_mesh({{"data", 2}}), "data"));
  const MemoryReport report = memory_report(named("model", model), [] { ones({1024}) + 1; });
  EXPECT_EQ(report.at_rest.size(), 1u);
  EXPECT_GE(report.peak_bytes, 4096);
  EXPECT_EQ(report.activation_bytes, 0);
}

TEST(MemoryReport, as_text_and_json) {
  const MemoryReport report{.mesh = {{"data", 8}},
                            .at_rest = {{"model", 400'000'000, 50'000'000}, {"gradients", 400'000'000, 50'000'000}},
                            .activation_bytes = 1'048'576,
                            .peak_bytes = 401'048'576};
  EXPECT_EQ(report.to_text(),
            "8 devices (data=8)                            bytes/device             bytes\n"
            "model                                           50,000,000       400,000,000\n"
            "gradients                                       50,000,000       400,000,000\n"
            "at rest                                        100,000,000       800,000,000\n"
            "measured in this process, all devices, replicas held once:\n"
            "activations of the forward pass                                    1,048,576\n"
            "peak of the step, above what was there                           401,048,576\n");
  EXPECT_EQ(boost::json::parse(report.to_json()), boost::json::parse(R"json({
    "mesh": {"data": 8}, "at_rest": [{"name": "model", "bytes": 400000000, "bytes_per_device": 50000000},
    {"name": "gradients", "bytes": 400000000, "bytes_per_device": 50000000}], "bytes_per_device": 100000000,
    "activation_bytes": 1048576, "peak_bytes": 401048576, "measured": "process"})json"));
}

}  // namespace
}  // namespace tessera::nn::memory_report_test
