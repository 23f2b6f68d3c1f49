// The examples of Equinox's tutorial on parallelism: a sharded batch and a replicated model, on two devices.
#include <boost/json.hpp>
#include <numeric>

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

Mesh batch_mesh() { return make_mesh({{"batch", 2}}); }

void data_sharded(Example& e) {
  const Array data = uniform(Key(22), {1024});
  const std::vector<float> values = data.to_host<float>();
  if (values != e.tensor("data").to_host<float>()) fail(ErrorKind::other, "uniform", "other bits than JAX's.");
  const Array sharded = nn::filter_shard(data, NamedSharding(batch_mesh(), P{"batch"}));
  e.array("data_sharded", sharded);
  e.visualize("data_sharded", sharded);
  const std::vector<float> all = sharded.to_host<float>();
  e.value("sum", std::accumulate(all.begin(), all.end(), 0.0));
}

// Equinox stores the weights of a linear layer as (out, in).
struct Linear {
  nn::Param weight, bias;
  Array operator()(const Array& x) const { return matmul(x, transpose(weight)) + bias; }
};

struct Embedding {
  nn::Param weight;
};

struct Model {
  Embedding embed;
  Linear hidden, out;
  Array operator()(const Array& tokens) const { return out(tanh(hidden(embedding(embed.weight, tokens)))); }
};

nn::Param parameter(const Shape& shape) {
  return {.value = zeros(shape), .axes = Axes(std::vector<AxisName>(shape.size(), none))};
}

// Leaf i is det(shape, c = 11 + 7 i, d = 256).
Model make_model() {
  Model model{.embed = {parameter({16, 8})},
              .hidden = {parameter({12, 8}), parameter({12})},
              .out = {parameter({16, 12}), parameter({16})}};
  int64_t i = 0;
  for (const nn::Leaf& leaf : nn::leaves(model)) *leaf.value = det(leaf.value->shape(), {.c = 11 + 7 * i++, .d = 256});
  return model;
}

// The label of a token is its successor.
Array next_token_loss(const Model& model, const Array& tokens) {
  return cross_entropy(model(tokens), (tokens + 1) % 16);
}

bool all_replicated(const nn::Leaves& leaves) {
  return std::all_of(leaves.begin(), leaves.end(), [](const auto& leaf) { return leaf.value->is_fully_replicated(); });
}

void model_replicated(Example& e) {
  const Mesh mesh = batch_mesh();
  Model model = nn::filter_shard(make_model(), NamedSharding(mesh, P{}));
  auto optimizer = optim::Optimizer(model, optim::chain(optim::clip_by_global_norm(1.0),
                                                        optim::adamw({.learning_rate = 1e-2, .weight_decay = 1e-4})));
  const Array batch =
      nn::filter_shard(det({32}, {.k = 7, .c = 3, .m = 16, .s = 0, .d = 1}, int32), NamedSharding(mesh, P{"batch"}));
  e.array("x_0_batch", batch);
  for (const nn::Leaf& leaf : nn::leaves(model)) e.array("model." + leaf.path, *leaf.value);

  const nn::Leaves state = nn::leaves(optimizer);
  int64_t bytes = sizeof(int32_t);  // Adam's count: an array in JAX, a host scalar here
  for (const nn::Leaf& leaf : state) bytes += leaf.value->shard_bytes();
  e.value("opt_state_arrays", state.size() + 1);
  e.value("opt_state_all_replicated", all_replicated(state));
  e.value("opt_state_bytes_per_device", bytes);

  const Array output = model(batch);
  e.array("output", output);
  e.value("output", output);
  json::array losses;
  for (int step = 0; step < 5; ++step) {
    const auto [loss, grads] = nn::value_and_grad(next_token_loss)(model, batch);
    optimizer.update(model, grads);
    losses.push_back(loss.item<float>());
  }
  e.value("losses", losses);
  e.value("weights_replicated_after_training", all_replicated(nn::leaves(model)));
}

}  // namespace

Programs equinox_programs() { return {{"eqx.data_sharded", data_sharded}, {"eqx.model_replicated", model_replicated}}; }

}  // namespace tessera::runner
