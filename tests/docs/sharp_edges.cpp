// The code of docs/sharp_edges.md: each surprise, and the code that avoids it.
#include <iostream>
#include <optional>
#include <vector>

#include <tessera/data/batches.h>
#include <tessera/data/datasets.h>
#include <tessera/data/loader.h>
#include <tessera/nn/layers.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/transformations.h>
#include <tessera/nn/tree.h>
#include <tessera/optim/optimizer.h>
#include <tessera/optim/wrappers.h>
#include <tessera/sharding/accounting.h>
#include <tessera/sharding/base.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/placement.h>
#include <tessera/sharding/random.h>
#include <tessera/sharding/runtime.h>

using namespace tessera;

struct Batch {
  NamedArray x{"batch", "embed"};
};

Array loss_of(const nn::Linear& model, const Batch& batch) { return mean(square(model(batch.x))); }

void not_placed(const nn::Linear& model, const MeshRules& mesh_rules) {
  Batch batch;
  batch.x = ones({64, 8});
  const CommLedger ledger;
  nn::value_and_grad(loss_of)(model, batch);  // each device computes all rows
  std::cout << ledger.to_text();
  nn::value_and_grad(loss_of)(model, data::from_process_local(batch, mesh_rules));  // computes its own rows
}

void batch_by_filter_shard(const MeshRules& mesh_rules) {
  Batch batch;
  batch.x = ones({64, 8});
  std::cout << '"' << nn::filter_shard(batch, mesh_rules).x.value.path() << "\"\n";          // a parameter named x
  std::cout << '"' << data::from_process_local(batch, mesh_rules).x.value.path() << "\"\n";  // no parameter
}

struct Decoder {
  nn::Embedding embed, head;
};

void one_module_in_two_fields(const MeshRules& mesh_rules) {
  const auto embed = nn::Embedding::init(Key(0), {"vocab", 16}, {"embed", 8});
  const Decoder tied{.embed = embed, .head = embed};
  try {
    (void)nn::filter_shard(tied, mesh_rules);
  } catch (const Error& error) {
    std::cout << error.what() << '\n';
  }
  const Decoder copies = nn::tree_map([](const Array& w) { return w * 0.5; }, tied);  // no error: two arrays
  std::cout << nn::num_parameters(nn::filter_shard(copies, mesh_rules)) << " parameters\n";
  const Array x = embed(zeros({4}, int32)), logits = embed.attend(x);  // one field, used twice
}

void broadcast() {
  const Array predictions = ones({64, 1}), labels = ones({64});
  std::cout << to_string((predictions - labels).shape()) << '\n';
  std::cout << to_string((squeeze(predictions, -1) - labels).shape()) << '\n';
  std::cout << to_string((predictions - mean(predictions, -1, true)).shape()) << '\n';  // true: keepdims
}

void batch_in_a_loop(data::Loader<std::vector<int64_t>>& loader) {
  const std::optional<std::vector<int64_t>> batch = loader.next();
  for (const int64_t id : *batch) std::cout << id << ' ';
  std::cout << '\n';
}

Array of_a_copy(nn::BatchNorm norm, const Array& x) { return mean(square(norm(x) - 1)); }
Array of_the_model(nn::BatchNorm& norm, const Array& x) { return mean(square(norm(x) - 1)); }

void statistics(nn::BatchNorm norm, const Array& x) {
  nn::value_and_grad(of_a_copy)(norm, x);
  std::cout << norm.mean.value << '\n';
  nn::value_and_grad(of_the_model)(norm, x);
  std::cout << norm.mean.value << '\n';
}

void frozen(nn::Linear model, const Batch& batch) {
  const nn::Filter trained = nn::by_path("bias");
  const nn::Linear before = model;
  auto optimizer = optim::Optimizer(model, optim::masked(optim::sgd({.learning_rate = 0.1}), trained));
  const auto [loss, grads] = nn::value_and_grad(loss_of, trained)(model, batch);  // no gradient of the kernel
  optimizer.update(model, grads);
  std::cout << "kernel: " << nn::tree_equal(before.kernel, model.kernel) << '\n';
  const auto [same, all_grads] = nn::value_and_grad(loss_of)(model, batch);
  optimizer.update(model, all_grads);  // adds the raw gradient to the kernel
  std::cout << "kernel: " << nn::tree_equal(before.kernel, model.kernel) << '\n';
}

void dropout_keys(const Array& x) {
  const nn::Dropout dropout{.rate = 0.5};
  const Key key(1);
  std::cout << nn::tree_equal(dropout(x, key), dropout(x, key)) << '\n';
  std::cout << nn::tree_equal(dropout(x, fold_in(key, 1)), dropout(x, fold_in(key, 2))) << '\n';
}

void catch_all(const nn::Linear& model, const Mesh& mesh) {
  const MeshRules mesh_rules{mesh, {{"hiden", "data"}, {ParamPattern{}, replicated}}};
  std::cout << nn::explain(model, mesh_rules);
}

void read_an_integer() {
  const Array x = full({}, 2.5);
  std::cout << astype(x, int32).item<int>() << ' ' << astype(round(x), int32).item<int>() << '\n';
  try {
    x.item<int>();
  } catch (const Error& error) {
    std::cout << error.what() << '\n';
  }
}

void one_process_prints(const Array& x) {
  const Array whole = gather(x);  // all processes call it
  if (process_index() == 0) std::cout << whole.type_string() << '\n';
}

int main() {
  const MeshRules mesh_rules{make_mesh({{"data", 4}}),
                             {{"batch", "data"}, {"vocab", "data"}, {"hidden", replicated}, {"embed", replicated}}};
  const auto linear = nn::Linear::init(Key(0), {"embed", 8}, {"hidden", 4});
  const auto model = nn::filter_shard(linear, mesh_rules);
  Batch batch;
  batch.x = ones({64, 8});
  not_placed(model, mesh_rules);
  batch_by_filter_shard(mesh_rules);
  one_module_in_two_fields(mesh_rules);
  broadcast();
  data::Loader loader(data::range(8), data::as_vector, {.batch_size = 4});
  batch_in_a_loop(loader);
  statistics(nn::BatchNorm::init({"embed", 2}), ones({4, 2}));
  frozen(linear, batch);
  dropout_keys(ones({8, 8}));
  catch_all(linear, mesh_rules.mesh());
  read_an_integer();
  one_process_prints(model.kernel);
}
