// The examples of the tutorial on scaling up: constraints, annotated parameters, logical axes, meshes of eight devices.
#include <fmt/format.h>

#include <boost/json.hpp>

#include "data/datasets/dataset.h"
#include "nn/layers/linear.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/value_and_grad.h"
#include "optim/optimizer.h"
#include "sharding/operations.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"
#include "tests/runner/seeds_examples.h"

namespace tessera::runner {
namespace {

namespace json = boost::json;

void mesh_and_specs(Example& e) {
  e.value("mesh", json_of(data_model()));
  const std::pair<const char*, PartitionSpec> specs[] = {
      {"spec1", P{"data", "model"}}, {"spec2", P{"data", none}}, {"spec3", P{none, "model"}}};
  for (const auto& [name, spec] : specs) {
    const Array x = device_put(det({64, 16}), NamedSharding(data_model(), spec));
    e.array(name, x);
    e.visualize(name, x);
  }
}

void device_put_batch(Example& e) {
  const Array batch = reshape(arange(32 * 128), {32, 128});
  const Array sharded = device_put(batch, NamedSharding(data_model(), P{"data", none}));
  e.array("sharded_batch", sharded);
  e.visualize("sharded_batch", sharded);
  json::array first;
  for (const Shard& shard : sharded.addressable_shards())
    first.push_back(json::array{shard.device, shard.data.to_host<int32_t>()[0]});
  e.value("first element of each shard", first);
}

void constraint_step(Example& e) {
  const Mesh mesh = data_model();
  const Array x = det({16, 8});
  e.error("without a mesh context", [&] { with_sharding_constraint(x, P{"data", none}); });
  e.array("from an unsharded array", with_sharding_constraint(x, NamedSharding(mesh, P{"data", none})) * 2);
  const Array z = with_sharding_constraint(device_put(x, NamedSharding(mesh, P{none, "model"})), P{"data", none}) * 2;
  e.array("from P(None, 'model')", z);
  e.checksum("checksum", z);
}

// A parameter whose dimensions are named by mesh axes.
struct Dot {
  nn::Param kernel;

  static Dot init(const Shape& shape, const Axes& axes) { return {{.value = normal(Key(0), shape), .axes = axes}}; }
};

void nnx_metadata(Example& e) {
  const MeshRules mesh_rules(data_model(), {});
  const auto on = [](const char* axis) { return mesh_axis(axis); };
  const struct {
    const char* name;
    Axes axes;
    json::array spec;
  } cases[] = {{"(None, 'model')", {none, on("model")}, {nullptr, "model"}},
               {"('data', 'model')", {on("data"), on("model")}, {"data", "model"}},
               {"('model', None)", {on("model"), none}, {"model", nullptr}},
               {"('data',)", {on("data"), none}, {"data"}}};
  for (const auto& c : cases) {
    const Dot dot = nn::filter_shard(Dot::init({16, 32}, c.axes), mesh_rules);
    e.array(fmt::format("kernel {}", c.name), dot.kernel);
    json::array names;
    for (const AxisName& axis : dot.kernel.axes) names.push_back(axis.is_none() ? Json() : Json(axis.name()));
    names.resize(c.spec.size());  // the document omits the last name; here each dimension has one
    e.value(
        fmt::format("metadata {}", c.name),
        json::object{{"out_sharding", names},
                     {"partition_spec", json_of(dot.kernel.value.sharding().spec(), static_cast<int>(c.spec.size()))}});
  }
  e.error("uneven", [&] { (void)nn::filter_shard(Dot::init({16, 5}, {none, on("model")}), mesh_rules); });
  e.error("unknown axis", [&] { (void)nn::filter_shard(Dot::init({16, 8}, {none, on("tensor")}), mesh_rules); });
  e.differs("errors", "without a mesh context", "a parameter is made without a mesh, and placed by filter_shard");
}

struct LogicalDotReluDot {
  nn::Linear dot1, dot2;

  static LogicalDotReluDot init(int64_t depth) {
    const Axis embed{"embed", depth}, hidden{"hidden", depth};
    LogicalDotReluDot model{.dot1 = nn::Linear::init(Key(0), embed, hidden, {.bias = false}),
                            .dot2 = nn::Linear::init(Key(1), hidden, embed, {.bias = false})};
    model.dot1.kernel.value = det({depth, depth}, {.d = 128});
    model.dot2.kernel.value = det({depth, depth}, {.c = 18, .d = 128});
    return model;
  }
  Array operator()(const Array& x) const { return dot2(relu(dot1(x))); }
};

Array token_loss(const LogicalDotReluDot& model, const Array& x, const Array& labels) {
  return cross_entropy(model(x), labels);
}

json::array names_of(const Axes& axes) {
  json::array names;
  for (const AxisName& axis : axes) names.push_back(Json(axis.name()));
  return names;
}

// The path of "state.0.mu.dot1.kernel" in the file.
std::string state_path(const std::string& path) { return "opt_state" + path.substr(path.find('.')); }

void logical_axes_training(Example& e) {
  const int64_t depth = 8;
  const Mesh mesh = data_model();
  const MeshRules mesh_rules(mesh, {{"batch", "data"}, {"hidden", "model"}, {"embed", replicated}});
  auto model = nn::filter_shard(LogicalDotReluDot::init(depth), mesh_rules);
  e.array("dot1", model.dot1.kernel);
  e.array("dot2", model.dot2.kernel);
  e.value("dot1 logical axes", names_of(model.dot1.kernel.axes));
  e.value("dot2 logical axes", names_of(model.dot2.kernel.axes));
  auto optimizer = optim::Optimizer(model, optim::adam({.learning_rate = 1e-2}));
  for (const nn::Leaf& leaf : nn::leaves(optimizer)) e.optimizer_state(state_path(leaf.path), *leaf.value);
  for (const char* name : {"opt_state.0.count", "step"})
    e.differs("optimizer_state", name, "counts are numbers of the host");

  json::array losses;
  for (int64_t t = 0; t < 6; ++t) {
    const Array x = device_put(det({16, depth}, {.c = 11 + 3 * t}), Axes{"batch", "embed"}, mesh_rules);
    const Array labels =
        device_put(det({16}, {.k = 3, .c = 1 + t, .m = depth, .s = 0, .d = 1}, int32), Axes{"batch"}, mesh_rules);
    const auto [loss, grads] = nn::value_and_grad(token_loss)(model, x, labels);
    optimizer.update(model, grads);
    losses.push_back(loss.item<float>());
  }
  e.value("losses", losses);
  e.array("dot1 after training", model.dot1.kernel);
  e.checksum("dot1 checksum", model.dot1.kernel);
  e.differs("values", "inputs", "the formula of the batches, written in the loop");
  e.error("a logical name without a rule",
          [&] { (void)nn::filter_shard(LogicalDotReluDot::init(depth), MeshRules(mesh, {{"hidden", "model"}})); });
  e.differs("arrays", "hidden has two rules, model then data: the last one wins",
            "the first rule that fits wins here; the later one is its fallback");
}

void eight_core_meshes(Example& e) {
  const std::pair<int64_t, int64_t> shapes[] = {{4, 2}, {2, 4}, {1, 8}, {8, 1}};
  Array product;
  for (const auto& [batch, model] : shapes) {
    const std::string name = fmt::format("({}, {})", batch, model);
    const Mesh mesh = make_mesh({{"batch", batch}, {"model", model}});
    const Array x = device_put(det({32, 64}), NamedSharding(mesh, P{"batch", none}));
    const Array w = device_put(det({64, 128}, {.k = 29, .c = 3}), NamedSharding(mesh, P{none, "model"}));
    CommLedger ledger;
    product = matmul(x, w);
    e.array(name + " batch", x);
    e.array(name + " weight", w);
    e.array(name + " product", product);
    e.collectives(name + " product", ledger);
  }
  e.checksum("checksum of the product", product);
}

// Grain gives each shard consecutive records; the remainder goes to the first shards, one record each.
json::array shards_of(int64_t records, int64_t count, bool drop_remainder) {
  const auto dataset = data::range(records);
  json::array shards;
  for (int64_t shard = 0; shard < count; ++shard) {
    const auto [begin, end] = data::even_split(records, {shard, count, drop_remainder});
    json::array indices;
    for (const int64_t i : dataset.slice(begin, end)) indices.push_back(i);
    shards.push_back(indices);
  }
  return shards;
}

void grain_shards(Example& e) {
  const struct {
    int64_t records, count;
    bool drop;
  } cases[] = {{16, 4, false}, {16, 4, true}, {10, 4, false}, {10, 4, true}, {8, 1, false}};
  for (const auto& c : cases)
    e.value(fmt::format("{} records, {} shards, drop_remainder={}", c.records, c.count, c.drop ? "True" : "False"),
            shards_of(c.records, c.count, c.drop));
}

}  // namespace

Programs scaling_programs() {
  return {{"scaling.mesh_and_specs", mesh_and_specs},
          {"scaling.device_put_batch", device_put_batch},
          {"scaling.constraint_step", constraint_step},
          {"scaling.nnx_metadata", nnx_metadata},
          {"scaling.logical_axes_training", logical_axes_training},
          {"scaling.eight_core_meshes", eight_core_meshes},
          {"scaling.grain_shards", grain_shards}};
}

}  // namespace tessera::runner
