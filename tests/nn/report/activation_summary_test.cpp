// nn::activation_summary and nn::capture: tables on real and abstract meshes, compared with a real step, and errors.
#include "nn/report/activation_summary.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>

#include "examples/transformer.h"
#include "nn/layers/embedding.h"
#include "nn/placement/filter_shard.h"
#include "nn/report/capture.h"
#include "nn/report/report.h"
#include "sharding/accounting/forecast.h"
#include "sharding/operations/define_operation.h"
#include "sharding/redistribution/device_put.h"
#include "tests/nn/support.h"
#include "tests/sharding/allocations.h"

namespace tessera::nn::activation_summary_test {
namespace {

using testing::expect_error;

// ---- the models

using examples::Gpt;

Gpt readme_transformer(int64_t layers) {
  return Gpt::init(Key(0), {.vocab = 256, .embed = 128, .heads = 4, .layers = layers, .seq = 128, .mlp = 512});
}

struct Tokens {
  Array inputs, targets;
};

Tokens tokens_on(const MeshRules& mesh_rules, int64_t rows = 32, int64_t seq = 128) {
  const Array ids = device_put(zeros({rows, seq}, int32), Axes{"batch", "seq"}, mesh_rules);
  return {ids, ids};
}

Array transformer_loss(const Gpt& model, const Tokens& batch) { return examples::next_token_loss(model, batch); }

const Rules tensor_parallel{{"vocab", "model"}, {"heads", "model"}, {"mlp", "model"}, {"batch", "data"}};

MeshRules mesh_rules_on(const Mesh& mesh, Rules rules) {
  return MeshRules(mesh, examples::with_all_names(std::move(rules)));
}

ActivationTable trace_transformer(const Mesh& mesh, Rules rules, bool remat = false) {
  const MeshRules mesh_rules = mesh_rules_on(mesh, std::move(rules));
  Gpt model = filter_shard(readme_transformer(2), mesh_rules);
  model.remat = remat;
  return activation_summary(transformer_loss, model, tokens_on(mesh_rules));
}

// The model of the Equinox tutorial on filter_shard.
struct Denoiser {
  Embedding embed;
  Linear hidden, out;
  Array operator()(const Array& tokens) const { return out(tanh(hidden(embed(tokens)))); }
};

ActivationTable trace_equinox(const Mesh& mesh) {
  const auto [k1, k2, k3] = split<3>(Key(0));
  const Axis vocab{"vocab", 16}, embed{"embed", 8}, time{"time", 12};
  const Denoiser model{.embed = Embedding::init(k1, vocab, embed),
                       .hidden = Linear::init(k2, embed, time, {.bias = false}),
                       .out = Linear::init(k3, time, vocab, {.bias = false})};
  const auto loss = [](const Denoiser& m, const Array& x) { return cross_entropy(m(x), (x + 1) % 16); };
  return activation_summary(loss, filter_shard(model, NamedSharding(mesh, P{})),
                            device_put(zeros({32}, int32), NamedSharding(mesh, P{"batch"})));
}

// The model of the Flax NNX tutorial on automatic sharding: kernels sharded over model.
ActivationTable trace_flax(const Mesh& mesh) {
  const auto place = [&](const std::string& path, const Array&) {
    return NamedSharding(mesh, path.ends_with("kernel") ? P{none, "model"} : P{});
  };
  const auto mse = [](const Mlp& m, const Array& x) { return mean(square(m(x) - x)); };
  return activation_summary(mse, filter_shard(Mlp::init(Key(0), {"embed", 512}, {"hidden", 2048}), place),
                            device_put(zeros({64, 512}), NamedSharding(mesh, P{"data"})));
}

// The model of the Flax tutorial on scaling up: dot, relu, dot with logical names, FSDP and tensor parallel.
struct DotReluDot {
  Linear dot1, dot2;
  Array operator()(const Array& x) const { return dot2(relu(dot1(x))); }
};

ActivationTable trace_scaling_up(const Mesh& mesh) {
  const MeshRules mesh_rules{mesh, {{"batch", "data"}, {"embed", "data"}, {"hidden", "model"}}};
  const Axis embed{"embed", 128}, hidden{"hidden", 128};
  const DotReluDot model{.dot1 = Linear::init(Key(0), embed, hidden, {.bias = false}),
                         .dot2 = Linear::init(Key(1), hidden, embed, {.bias = false})};
  const auto loss = [](const DotReluDot& m, const Array& x, const Array& y) { return cross_entropy(m(x), y); };
  return activation_summary(loss, filter_shard(model, mesh_rules),
                            device_put(zeros({32, 128}), Axes{"batch", none}, mesh_rules),
                            device_put(zeros({32}, int32), Axes{"batch"}, mesh_rules));
}

struct Traced {
  const char* name;
  std::vector<MeshAxis> mesh;
  std::function<ActivationTable(const Mesh&)> table;
};

const std::vector<MeshAxis> four_by_two{{"data", 4}, {"model", 2}};

const std::vector<Traced> all_traced{
    {"transformer", four_by_two, [](const Mesh& mesh) { return trace_transformer(mesh, tensor_parallel); }},
    {"transformer_fsdp",
     {{"data", 4}},
     [](const Mesh& mesh) { return trace_transformer(mesh, {{"batch", "data"}, {"embed", "data"}}, /*remat=*/true); }},
    {"equinox", {{"batch", 2}}, trace_equinox},
    {"flax", four_by_two, trace_flax},
    {"scaling_up", four_by_two, trace_scaling_up},
};

// ---- golden tables

std::string golden(const std::string& name) {
  std::ifstream file(std::string(TESSERA_REFERENCE_DIR) + "/activations/" + name + ".txt");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ActivationTables, AreTheGoldenOnesOnRealAndAbstractMeshes) {
  for (const Traced& traced : all_traced) {
    SCOPED_TRACE(traced.name);
    const ActivationTable real = traced.table(make_mesh(traced.mesh));
    EXPECT_EQ(std::regex_replace(real.to_text({.fold = true}), std::regex(R"((\.(cpp|h)):\d+)"), "$1"),
              golden(traced.name));
    EXPECT_EQ(traced.table(make_mesh(traced.mesh, {.abstract = true})).to_json(), real.to_json());
    EXPECT_EQ(traced.table(make_mesh(traced.mesh, {.private_replicas = true})).to_json(), real.to_json());
  }
}

// ---- compared with a step on devices

using Sums = std::map<std::string, std::pair<int64_t, int64_t>>;

Sums sums_of(const std::vector<ModuleTraffic>& traffic) {
  Sums sums;
  for (const ModuleTraffic& t : traffic) sums[t.kind + (t.backward ? " back" : "")] = {t.num_collectives, t.bytes};
  return sums;
}

TEST(ActivationTables, HaveTheTrafficOfTheStepOnDevices) {
  const MeshRules mesh_rules = mesh_rules_on(make_mesh(four_by_two), tensor_parallel);
  const Gpt model = filter_shard(Gpt::init(Key(0), {}), mesh_rules);
  const Tokens batch = tokens_on(mesh_rules, 4, 16);
  const CommLedger ledger;
  value_and_grad(transformer_loss)(model, batch);
  Sums measured;
  for (const CommRecord& r : ledger.records()) {
    auto& [count, bytes] = measured[r.kind + (r.backward ? " back" : "")];
    ++count, bytes += r.bytes;
  }
  EXPECT_EQ(sums_of(activation_summary(transformer_loss, model, batch).row("").traffic), measured);
}

// Without replicated arrays, n devices store n times the bytes of one.
TEST(ActivationTables, HaveTheBytesThatStayOnDevices) {
  if (std::getenv("TESSERA_DEVICE")) GTEST_SKIP() << "the table has what the CPU's kernels keep";
  for (const int64_t devices : {1, 2}) {
    const MeshRules mesh_rules =
        mesh_rules_on(make_mesh({{"data", devices}}, {.private_replicas = true}), {{"batch", "data"}});
    const Gpt model = filter_shard(Gpt::init(Key(0), {.layers = 1}), mesh_rules);
    const Tokens batch = tokens_on(mesh_rules, 4, 16);
    int64_t stays = 0;
    const tessera::testing::Allocations allocations;
    value_and_grad([&](const Gpt& m, const Tokens& b) {
      const Array loss = transformer_loss(m, b);
      stays = allocations.live();
      return loss;
    })(model, batch);
    EXPECT_EQ(devices * activation_summary(transformer_loss, model, batch).row("").saved_bytes, stays);
  }
}

TEST(ActivationTables, HaveTheOperationsOfAForecast) {
  const Mesh mesh = make_mesh(four_by_two, {.abstract = true});
  const MeshRules mesh_rules = mesh_rules_on(mesh, tensor_parallel);
  const Gpt model = filter_shard(readme_transformer(2), mesh_rules);
  const ActivationRow all = trace_transformer(mesh, tensor_parallel).row("");
  const Forecast forecast;
  value_and_grad(transformer_loss)(model, tokens_on(mesh_rules));
  EXPECT_EQ(all.forward_flops + all.backward_flops, forecast.flops());
  const ActivationRow again = trace_transformer(mesh, tensor_parallel, /*remat=*/true).row("layers.0");
  const ActivationRow block = trace_transformer(mesh, tensor_parallel).row("layers.0");
  EXPECT_EQ(again.backward_flops, block.backward_flops + block.forward_flops);
  EXPECT_EQ(again.inputs, block.inputs);
  EXPECT_EQ(again.outputs, block.outputs);
  EXPECT_LT(again.saved_bytes, block.saved_bytes);
}

TEST(ActivationTables, ComeOfAModelALossOrAStep) {
  const MeshRules mesh_rules{make_mesh({{"data", 2}}),
                             {{"batch", "data"}, {"embed", replicated}, {"hidden", replicated}}};
  const Mlp model = filter_shard(Mlp::init(Key(0), {"embed", 4}, {"hidden", 8}), mesh_rules);
  const Array x = device_put(zeros({6, 4}), Axes{"batch", "embed"}, mesh_rules);
  const auto loss = [](const Mlp& m, const Array& in) { return sum(m(in)); };
  const ActivationTable table = activation_summary(loss, model, x);
  EXPECT_EQ(table.row("up"), activation_summary(model, x).row("up"));
  EXPECT_EQ(table.row("up"), activation_summary(value_and_grad(loss), model, x).row("up"));
  EXPECT_EQ(
      table.row("up"),
      activation_summary([&](const Mlp& m, const Array& in) { value_and_grad(loss)(m, in); }, model, x).row("up"));
  EXPECT_EQ(activation_summary(model, x).row("").outputs[0].type, "float32[6@data,4]");
  EXPECT_EQ(activation_summary(Mlp::init(Key(0), {"embed", 4}, {"hidden", 8}), zeros({6, 4})).row("up").outputs[0].type,
            "float32[6,8]");
  const auto in_scope = [](const Mlp& m, const Array& in) {
    const Array y = m(in);
    const ModuleScope scope("loss.sum");
    return sum(y);
  };
  const ActivationRow last = activation_summary(in_scope, model, x).rows().back();
  EXPECT_EQ(last.path, "loss.sum");
  EXPECT_EQ(last.inputs[0].type, "float32[6@data,4]");
  EXPECT_EQ(last.outputs[0].type, "float32[]{U:data}");
  expect_error(ErrorKind::invalid_argument,
               "[activation_summary] \"donw\" given, expected a module that took part. Nearest: down, up.",
               [&] { table.row("donw"); });
}

// ---- arrays that are replicated silently

TEST(SilentlyReplicated, ByAMissingConstraint) {
  const MeshRules mesh_rules = mesh_rules_on(make_mesh(four_by_two), tensor_parallel);
  const Gpt model = filter_shard(readme_transformer(2), mesh_rules);
  const auto loss_with = [](auto constrain) {
    return [constrain](const Gpt& m, const Tokens& batch) {
      return cross_entropy(m(batch.inputs, constrain), batch.targets);
    };
  };
  const Tokens batch = tokens_on(mesh_rules);
  EXPECT_TRUE(activation_summary(loss_with(examples::constrain_by_names), model, batch).whole().empty());
  int placed = 0;  // counts constraints, to leave out the one after the embedding
  const auto planted = [&placed](const Array& x) { return placed++ % 5 == 0 ? x : examples::constrain_by_names(x); };
  const std::vector<WholeActivation> whole = activation_summary(loss_with(planted), model, batch).whole();
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].maker, "embed");
  EXPECT_EQ(whole[0].type, "float32[32@data,128,128]{U:model}");
  EXPECT_EQ(whole[0].mesh_axes, "model");
  EXPECT_EQ(whole[0].bytes_per_device, 8 * 128 * 128 * 4);
  EXPECT_TRUE(
      whole[0].cure().starts_with("with_sharding_constraint(x, P{\"data\", \"model\"}) on the result of embed at "
                                  "transformer.h:"));
  EXPECT_EQ(whole[0].as_it_is, "P{\"data\"}");
}

struct TwoStreams {
  Linear up, down;
  LayerNorm norm;
};

TEST(SilentlyReplicated, IsFixedByTheConstraintThatItNames) {
  const MeshRules mesh_rules{make_mesh(four_by_two),
                             {{"batch", "data"}, {"embed", replicated}, {"hidden", "model"}, {"norm", replicated}}};
  const TwoStreams model = filter_shard(
      TwoStreams{Linear::init(Key(0), {"embed", 8}, {"hidden", 16}, {.bias = false}),
                 Linear::init(Key(1), {"hidden", 16}, {"embed", 8}, {.bias = false}), LayerNorm::init({"norm", 8})},
      mesh_rules);
  const Array in = device_put(zeros({16, 6, 8}), Axes{"batch", none, "embed"}, mesh_rules);
  PartitionSpec spec;
  const auto loss = [&spec](const TwoStreams& m, const Array& x) {
    Array y = m.down(m.up(x));
    if (!spec.entries().empty()) y = with_sharding_constraint(y, spec);
    return sum(y * m.norm(y));
  };
  const ActivationTable table = activation_summary(loss, model, in);
  ASSERT_EQ(table.whole().size(), 1u);
  EXPECT_EQ(table.whole()[0].constraint, "P{\"data\", \"model\"}");
  EXPECT_EQ(table.row("norm").outputs[0].type, "float32[16@data,6,8]");
  const int line = __LINE__ - 6;
  EXPECT_EQ(table.whole()[0].where.line(), static_cast<unsigned>(line)) << table;
  spec = P{"data", "model"};
  EXPECT_TRUE(activation_summary(loss, model, in).whole().empty());
  EXPECT_EQ(activation_summary(loss, model, in).row("norm").outputs[0].type, "float32[16@data,6@model,8]");
  spec = P{"data"};
  EXPECT_TRUE(activation_summary(loss, model, in).whole().empty());
}

TEST(SilentlyReplicated, ByAnOperationThatGathers) {
  const MeshRules mesh_rules{make_mesh(four_by_two), {{"batch", "data"}, {"embed", replicated}, {"hidden", "model"}}};
  const Linear model = filter_shard(Linear::init(Key(0), {"embed", 4}, {"hidden", 6}), mesh_rules);
  const auto mixed = define_operation("mixed", "b [f] -> b [f]", [](const at::Tensor& t) { return t * t.mean(); });
  const auto whole_of = [&](int64_t rows) {
    return activation_summary([&](const Linear& m, const Array& x) { return sum(square(mixed(m(x)))); }, model,
                              device_put(zeros({rows, 4}), Axes{"batch", "embed"}, mesh_rules))
        .whole();
  };
  EXPECT_TRUE(whole_of(8).empty()) << "model cuts the rows instead";
  ASSERT_EQ(whole_of(4).size(), 1u);
  EXPECT_EQ(whole_of(4)[0].reason.substr(0, 89),
            "mixed needs dim 1 of the operand float32[4@data,6@model] replicated, so the operand is re");
  EXPECT_EQ(whole_of(4)[0].constraint, "") << "8 devices do not divide 4 rows";
}

// ---- capture and its output

TEST(Capture, HandsOutWhatModulesComputed) {
  const MeshRules mesh_rules = mesh_rules_on(make_mesh({{"data", 2}, {"model", 2}}), tensor_parallel);
  const Gpt model = filter_shard(Gpt::init(Key(0), {}), mesh_rules);
  const Array ids = device_put(zeros({4, 32}, int32), Axes{"batch", "seq"}, mesh_rules);
  const Array x = capture(model, "layers.0", ids).at("layers.0")[0];
  testing::expect_near(capture(model, "layers.1.ln1", ids).at("layers.1.ln1")[0], model.layers[1].ln1(x), 1e-6, "ln1");
  const CapturedArrays all = capture(transformer_loss, "layers.*.mlp.*", model, Tokens{ids, ids});
  std::string paths;
  for (const auto& [path, out] : all) paths += path + ' ' + out[0].type_string() + '\n';
  EXPECT_EQ(paths,
            "layers.0.mlp.down float32[4@data,32,64]\nlayers.0.mlp.up float32[4@data,32,256@model]\n"
            "layers.1.mlp.down float32[4@data,32,64]\nlayers.1.mlp.up float32[4@data,32,256@model]\n");
  expect_error(ErrorKind::invalid_argument,
               "[capture] \"layer.1.mlp\" given, expected the path of a module that computes. Nearest: layers.1.mlp, "
               "layers.0.mlp, layers.1.ln1.",
               [&] { capture(model, "layer.1.mlp", ids); });
}

TEST(ActivationTables, AreShownInEveryForm) {
  const ActivationTable table = trace_equinox(make_mesh({{"batch", 2}}));
  EXPECT_TRUE(
      table.to_markdown().starts_with("| module | type | in | out | saved, bytes | FLOPs | back | "
                                      "collectives |\n|---|"));
  EXPECT_EQ(boost::json::parse(table.to_json()).at("modules").as_array().size(), table.rows().size());
  const std::string page = Report{.title = "a", .activations = table}.to_html();
  EXPECT_NE(page.find("\"activations\":{\"modules\""), std::string::npos);
}

}  // namespace
}  // namespace tessera::nn::activation_summary_test
