// The examples of the tutorial on automatic sharding: meshes, specs, and the strategies of parallel training.
#include <fmt/format.h>

#include <boost/json.hpp>

#include "nn/layers/embedding.h"
#include "nn/layers/linear.h"
#include "nn/layers/norm.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/value_and_grad.h"
#include "optim/optimizer.h"
#include "sharding/operations.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"
#include "tests/runner/seeds_examples.h"

namespace tessera::runner {
namespace {

namespace json = boost::json;

Json grid(const std::vector<int>& ids, const std::vector<MeshAxis>& axes, size_t axis, size_t& next) {
  if (axis == axes.size()) return ids[next++];
  json::array result;
  for (int64_t i = 0; i < axes[axis].size; ++i) result.push_back(grid(ids, axes, axis + 1, next));
  return result;
}

void mesh_shapes(Example& e) {
  for (const std::vector<MeshAxis>& axes : {std::vector<MeshAxis>{{"data", 4}, {"model", 2}},
                                            {{"data", 8}},
                                            {{"fsdp", 8}},
                                            {{"data", 2}, {"model", 2}, {"pipeline", 2}}}) {
    const Mesh mesh = make_mesh(axes);
    std::string sizes, names;
    Shape shape;
    for (const MeshAxis& axis : axes) {
      sizes += fmt::format("{}{}", sizes.empty() ? "" : "x", axis.size);
      names += (names.empty() ? "" : ",") + axis.name;
      shape.push_back(axis.size);
    }
    size_t next = 0;
    json::object got = json_of(mesh).as_object();
    got["shape"] = json_of(shape);
    got["size"] = mesh.size();
    got["device_grid"] = grid(mesh.devices(), axes, 0, next);
    e.value(sizes + " " + names, got);
  }
}

void partition_specs(Example& e) {
  const Array x = det({128, 512});
  const Mesh tall = make_mesh({{"data", 8}, {"model", 1}}), both = data_model();
  const auto show = [&](const std::string& name, Mesh mesh, const PartitionSpec& spec, bool documented) {
    const Array placed = device_put(x, NamedSharding(mesh, spec));
    e.array(name, placed);
    const Shape local = placed.addressable_shards()[0].data.shape();
    if (documented) e.documented(name, json::object{{"each device gets", json_of(local)}});
  };
  show("(8,1) P('data', None)", tall, P{"data", none}, true);
  show("(8,1) P(None, 'data')", tall, P{none, "data"}, true);
  show("(4,2) P('data', 'model')", both, P{"data", "model"}, true);
  show("(4,2) P('data')", both, P{"data"}, false);
  show("(4,2) P(None, 'model')", both, P{none, "model"}, false);
  show("(4,2) P()", both, P{}, false);
}

void sharding_specs(Example& e) {
  const std::pair<const char*, PartitionSpec> strategies[] = {{"data_parallel", P{"data", none}},
                                                              {"model_parallel", P{none, "model"}},
                                                              {"hybrid", P{"data", "model"}},
                                                              {"replicated", P{}}};
  for (const auto& [name, spec] : strategies) {
    const Array x = device_put(det({32, 64}), NamedSharding(data_model(), spec));
    e.array(name, x);
    e.visualize(name, x);
  }
}

// The document does not show its transformer. This one has the parameters of the file's substitute.
struct Layer {
  nn::LayerNorm norm;
  nn::Linear query, key, value, out, up, down;
};

struct MyTransformer {
  nn::Param embed;
  std::vector<Layer> layers;
  nn::Linear head;
};

nn::Linear dense(int64_t in, int64_t out) { return nn::Linear::init(Key(0), {"in", in}, {"out", out}); }

MyTransformer my_transformer(int64_t d, int layers) {
  MyTransformer model{
      .embed = {.value = zeros({1000, d}), .axes = {"vocab", "embed"}}, .layers = {}, .head = dense(d, 10)};
  for (int i = 0; i < layers; ++i)
    model.layers.push_back({.norm = nn::LayerNorm::init({"embed", d}),
                            .query = dense(d, d),
                            .key = dense(d, d),
                            .value = dense(d, d),
                            .out = dense(d, d),
                            .up = dense(d, 4 * d),
                            .down = dense(4 * d, d)});
  return model;
}

// The file's name of a parameter.
std::string flax_path(const std::string& path) { return path == "embed" ? "embed.embedding" : path; }

void shard_params(Example& e) {
  const Mesh mesh = data_model();
  const auto choose = [&](const std::string& path, const Array& x) {
    const bool is_large = path.ends_with("kernel") && x.shape(0) > 256;
    return NamedSharding(mesh, is_large ? P{none, "model"} : P{});
  };
  const MyTransformer model = nn::filter_shard(my_transformer(512, 6), choose);
  int64_t parameters = 0, bytes = 0, bytes_per_device = 0;
  for (const nn::Leaf& leaf : nn::leaves(model)) {
    parameters += leaf.value->size(), bytes += leaf.value->nbytes(), bytes_per_device += leaf.value->shard_bytes();
    if (!leaf.path.starts_with("layers.") || leaf.path.starts_with("layers.0."))
      e.array(flax_path(leaf.path), *leaf.value);
  }
  e.value("total of six layers",
          json::object{{"parameters", parameters}, {"bytes", bytes}, {"bytes_per_device", bytes_per_device}});
}

struct TextClassifier {
  nn::Param embed;
  nn::Linear up, head;

  Array operator()(const Array& ids) const { return head(gelu(up(mean(embedding(embed, ids), {1})))); }
};

// Parameter i of [embed, up.kernel, up.bias, head.kernel, head.bias] is det(shape, c = 11 + 7 i, d = 256).
TextClassifier text_classifier() {
  TextClassifier model{
      .embed = {.value = zeros({64, 32}), .axes = {"vocab", "embed"}}, .up = dense(32, 64), .head = dense(64, 10)};
  int64_t i = 0;
  for (const nn::Leaf& leaf : nn::leaves(model)) *leaf.value = det(leaf.value->shape(), {.c = 11 + 7 * i++, .d = 256});
  return model;
}

struct TextBatch {
  Array ids, label;
};

TextBatch text_batch(int64_t t, Mesh mesh) {
  return {device_put(det({16, 8}, {.k = 7, .c = 3 + 5 * t, .m = 64, .s = 0, .d = 1}, int32),
                     NamedSharding(mesh, P{"data", none})),
          device_put(det({16}, {.k = 3, .c = 1 + t, .m = 10, .s = 0, .d = 1}, int32), NamedSharding(mesh, P{"data"}))};
}

std::pair<Array, Array> loss_and_accuracy(const TextClassifier& model, const TextBatch& batch) {
  const Array logits = model(batch.ids);
  const Array loss = -mean(sum(one_hot(batch.label, 10) * log_softmax(logits), {-1}));
  return {loss, mean(astype(equal(argmax(logits, -1), batch.label), float32))};
}

void train_step(Example& e) {
  const Mesh mesh = data_model();
  auto model = nn::filter_shard(text_classifier(), [&](const std::string& path, const Array&) {
    return NamedSharding(mesh, path.ends_with("kernel") ? P{none, "model"} : P{});
  });
  auto optimizer = optim::Optimizer(model, optim::adam({.learning_rate = 1e-2}));
  json::array losses, accuracies;
  for (int64_t t = 0; t < 10; ++t) {
    const auto [value, grads] = nn::value_and_grad(loss_and_accuracy)(model, text_batch(t % 4, mesh));
    optimizer.update(model, grads);
    losses.push_back(value.first.item<float>());
    accuracies.push_back(value.second.item<float>());
  }
  e.value("losses", losses);
  e.value("accuracies", accuracies);
  e.array("up.kernel after training", model.up.kernel);
  e.array("head.kernel after training", model.head.kernel);
  e.checksum("up.kernel checksum", model.up.kernel);
  e.differs("values", "batches", "the formula of the batches, written in text_batch");
}

void data_parallel_label_error(Example& e) {
  const NamedSharding sharding(data_model(), P{"data", none});
  e.error("device_put of rank-1 labels with P('data', None)", [&] { device_put(zeros({16}, int32), sharding); });
  e.array("rank-2 ids", device_put(zeros({16, 8}, int32), sharding));
}

void tensor_parallel(Example& e) {
  const Mesh mesh = make_mesh({{"model", 8}});
  const Array query = device_put(zeros({512, 512}), NamedSharding(mesh, P{none, "model"}));
  e.array("query projection", query);
  e.documented("query projection",
               json::object{{"each device has", json_of(query.addressable_shards()[0].data.shape())}});
  e.array("bias", device_put(zeros({512}), NamedSharding(mesh, P{})));
}

// Checks x @ w and its communication for these shardings of x and w.
void matrix_product(Example& e, const PartitionSpec& x_spec, const char* program, bool visualized) {
  const Mesh mesh = data_model();
  const Array x = device_put(det({16, 32}), NamedSharding(mesh, x_spec));
  const Array w = device_put(det({32, 64}, {.k = 29, .c = 3}), NamedSharding(mesh, P{none, "model"}));
  CommLedger ledger;
  const Array y = matmul(x, w);
  e.array("output", y);
  if (visualized) e.visualize("output", y);
  e.collectives(program, ledger);
  e.checksum("checksum", y);
}

void fsdp_memory(Example& e) {
  const Mesh mesh = make_mesh({{"fsdp", 8}});
  const Shape shape{10000, 10000};  // 400 MB, never allocated
  const auto show = [&](const char* name, const PartitionSpec& spec) {
    const int64_t bytes = NamedSharding(mesh, spec).shard_bytes(shape, float32);
    e.value(name, json::object{{"per_device", bytes}, {"all_devices", 8 * bytes}});
    return bytes / 1000000;
  };
  const int64_t without = show("replicated", P{}), with = show("fsdp", P{"fsdp"});
  e.documented(
      "memory",
      json::object{{"without", fmt::format("{}MB model x 8 devices = {:.1f}GB total", without, 8 * without / 1000.0)},
                   {"with", fmt::format("{}MB per device, {}MB total", with, 8 * with)}});
}

void reshard_in_jit(Example& e) {
  const Mesh mesh = data_model();
  const NamedSharding target(mesh, P{"model"});
  const Array x = device_put(det({16, 8}), NamedSharding(mesh, P{"data"}));
  {
    CommLedger ledger;
    e.array("with_sharding_constraint inside jit", with_sharding_constraint(x, target) * 2);
    e.collectives("with_sharding_constraint inside jit", ledger);
  }
  e.array("device_put outside jit", device_put(x, target));
  e.differs("arrays", "device_put inside jit", "JAX drops the placement there; here there is one device_put");
}

}  // namespace

Programs spmd_programs() {
  return {{"spmd.mesh_shapes", mesh_shapes},
          {"spmd.partition_specs", partition_specs},
          {"spmd.sharding_specs", sharding_specs},
          {"spmd.shard_params", shard_params},
          {"spmd.train_step", train_step},
          {"spmd.data_parallel_label_error", data_parallel_label_error},
          {"spmd.tensor_parallel", tensor_parallel},
          {"spmd.two_d_matmul",
           [](Example& e) {
             matrix_product(e, P{"data", "model"}, "matmul", false);
           }},
          {"spmd.fsdp_memory", fsdp_memory},
          {"spmd.reshard_in_jit", reshard_in_jit},
          {"spmd.constraint_propagation", [](Example& e) {
             matrix_product(e, P{"data", none}, "dot", true);
           }}};
}

}  // namespace tessera::runner
