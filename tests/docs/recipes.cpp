// The code of docs/recipes.md: one function for each recipe.
#include <fstream>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <tessera/data/batches.h>
#include <tessera/nn/checkpoint.h>
#include <tessera/nn/layers.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/report.h>
#include <tessera/nn/transformations.h>
#include <tessera/nn/tree.h>
#include <tessera/optim/formulas.h>
#include <tessera/optim/optimizer.h>
#include <tessera/optim/schedules.h>
#include <tessera/optim/wrappers.h>
#include <tessera/sharding/accounting.h>
#include <tessera/sharding/array.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/placement.h>
#include <tessera/sharding/random.h>

using namespace tessera;

struct Mlp {
  nn::Linear up, down;

  static Mlp init(const Key& key, const Axis& embed, const Axis& hidden) {
    const auto [k1, k2] = split<2>(key);
    return {.up = nn::Linear::init(k1, embed, hidden), .down = nn::Linear::init(k2, hidden, embed)};
  }
  Array operator()(const Array& x) const { return down(gelu(up(x))); }
};

struct Batch {
  Array x, y;
};

Array loss_of(const Mlp& model, const Batch& batch) { return mean(square(model(batch.x) - batch.y)); }

// ---- Look at a model and at arrays
// -----------------------------------------------------------------------------------

void count(const Mlp& model) {
  std::cout << model << nn::num_parameters(model) << " parameters, " << nn::num_bytes(model) << " bytes\n";
}

void print_arrays() {
  const Array x = reshape(arange(6), {2, 3}) / 4;
  std::cout << x << '\n';
  const std::vector<float> values = x.to_host<float>();  // row-major
  std::cout << values[5] << ' ' << x.index({1, 2}).item<float>() << '\n';
}

void exchange(const Array& parameter) {
  DLManagedTensor* const tensor = to_dlpack(gather(parameter));  // the consumer calls its deleter
  const Array x = from_dlpack(tensor);                           // here the consumer is the library itself
  std::cout << x.type_string() << '\n';
}

void intermediates(const Mlp& model, const Array& x) {  // placed by filter_shard, which stores the paths
  for (const auto& [path, outputs] : nn::capture(model, "*", x))
    std::cout << path << ' ' << outputs[0].type_string() << '\n';
}

// ---- Devices
// ---------------------------------------------------------------------------------------------------------

void to_device(Mlp model, Batch batch, const std::string& device) {  // "cuda", "cuda:1" or "cpu"
  const MeshRules mesh_rules{make_mesh({{"data", 1}}, {.device = device}), {{ParamPattern{}, replicated}}};
  model = nn::filter_shard(model, mesh_rules);
  batch = data::from_process_local(batch, mesh_rules);
  std::cout << loss_of(model, batch).sharding().mesh().device() << '\n';
}

void gather_a_parameter(const Mlp& model) {
  const Array whole = gather(model.up.kernel);  // with several processes, all call it
  std::cout << model.up.kernel.value.type_string() << " -> " << whole.type_string() << '\n';
}

void forbid(const Mlp& model, const Batch& batch) {
  const auto guard = forbid_implicit_communication({.mesh_axes = {"model"}, .backward = true});
  const auto [loss, grads] = nn::value_and_grad(loss_of)(model, batch);
}

// ---- Optimizers and schedules
// ----------------------------------------------------------------------------------------

void clip_gradients(Mlp model, const Batch& batch) {
  auto optimizer =
      optim::Optimizer(model, optim::chain(optim::clip_by_global_norm(0.1), optim::adamw({.learning_rate = 3e-4})));
  const auto [loss, grads] = nn::value_and_grad(loss_of)(model, batch);
  optimizer.update(model, grads);
  std::cout << "norm before clipping: " << *optimizer.grad_norm() << '\n';
}

void warmup(const Mlp& model) {
  const auto rate = optim::warmup_cosine_decay_schedule({.peak_value = 3e-4, .warmup_steps = 100, .decay_steps = 1000});
  auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = rate}));
  for (const int64_t step : {0, 50, 100, 550, 1000}) std::cout << step << ' ' << rate(step) << '\n';
}

void stable_decay() {
  const auto rate = optim::warmup_stable_decay_schedule({.peak_value = 3e-4,
                                                         .warmup_steps = 100,
                                                         .stable_steps = 800,
                                                         .decay_steps = 100,
                                                         .decay_shape = optim::DecayShape::one_minus_sqrt});
  for (const int64_t step : {50, 100, 900, 925, 1000}) std::cout << step << ' ' << rate(step) << '\n';
}

void weight_decay(const Mlp& model) {
  const nn::Filter decayed = nn::is_param && !nn::by_path("**.bias") && !nn::by_axis("norm");
  auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = 3e-4, .weight_decay = 0.1, .mask = decayed}));
  const Mlp selected = nn::filter(model, decayed);
  for (const nn::Leaf& leaf : nn::leaves(selected))
    if (!leaf.value->is_absent()) std::cout << leaf.path << '\n';
}

void average(Mlp model, const Batch& batch) {
  auto optimizer =
      optim::Optimizer(model, optim::chain(optim::adamw({.learning_rate = 3e-4}), optim::params_ema(0.999)));
  const auto [loss, grads] = nn::value_and_grad(loss_of)(model, batch);
  optimizer.update(model, grads);
  const Mlp averaged = nn::combine(std::get<optim::ParamsEmaState<Mlp>>(optimizer.state()).ema, model);
  std::cout << loss_of(averaged, batch).item<float>() << '\n';
}

void freeze(Mlp model, const Batch& batch) {
  const nn::Filter trained = nn::by_path("down.**");
  auto optimizer = optim::Optimizer(model, optim::masked(optim::adamw({.learning_rate = 3e-4}), trained));
  const Mlp before = model;
  const auto [loss, grads] = nn::value_and_grad(loss_of, trained)(model, batch);
  optimizer.update(model, grads);
  std::cout << "first difference: " << nn::tree_difference(before, model) << '\n';
}

void curvature(const Mlp& model, const Batch& batch) {
  const Mlp direction = nn::grad(loss_of)(model, batch);
  const Mlp product = nn::hvp(loss_of)(model, batch, direction);  // the Hessian times the direction
  const auto in_model = [&](const Mlp& m) { return loss_of(m, batch); };
  const auto [loss, slope] = nn::jvp(in_model)(model, direction);
  const Array curvature = nn::jvp(nn::grad(in_model))(model, direction).second.down.kernel;  // the same product
  std::cout << slope.item<float>() << ' ' << curvature.type_string() << '\n';
}

void accumulate(const Mlp& model, const Batch& batch) {
  const auto [whole, grads_of_whole] = nn::value_and_grad(loss_of)(model, batch);
  const auto [loss, grads] = nn::accumulate_gradients(loss_of, 4)(model, batch);
  std::cout << whole.item<float>() << ' ' << loss.item<float>() << '\n';
}

// ---- Less memory, fewer bits
// -----------------------------------------------------------------------------------------

Array mixed_loss(const Mlp& model, const Batch& batch) {
  const Array y = nn::cast(model, bfloat16)(astype(batch.x, bfloat16));
  return mean(square(astype(y, float32) - batch.y));
}

void mixed_precision(const Mlp& model, const Batch& batch) {
  const auto [loss, grads] = nn::value_and_grad(mixed_loss)(model, batch);
  std::cout << "gradients: " << grads.up.kernel.value.type_string() << '\n';
}

struct Deep {
  std::vector<Mlp> layers;

  Array operator()(Array x) const {
    for (const Mlp& layer : layers) x = x + nn::remat(layer)(x);
    return x;
  }
};

// ---- Models
// ----------------------------------------------------------------------------------------------------------

struct Gate {
  nn::Param weight;

  static Gate init(const Axis& features) { return {.weight = {zeros({features.size}), {features.name}}}; }
  Array operator()(const Array& x) const {
    const nn::ModuleScope scope(*this);  // names the layer in ledgers and errors
    return x * sigmoid(weight);
  }
};

struct Metrics {
  Array accuracy, entropy;
};

std::pair<Array, Metrics> classify(const Mlp& model, const Batch& batch) {
  const Array logits = model(batch.x), p = softmax(logits);
  return {cross_entropy(logits, batch.y),
          {.accuracy = mean(equal(argmax(logits, -1), batch.y)), .entropy = mean(-sum(p * log(p), -1))}};
}

void custom_loss(const Mlp& model, const Batch& batch) {
  const auto [result, grads] = nn::value_and_grad(classify)(model, batch);
  const auto& [loss, metrics] = result;
  std::cout << loss.item<float>() << ' ' << metrics.accuracy.item<float>() << '\n';
}

void replace_a_layer(const Mlp& model) {
  const Mlp wider = nn::tree_at(&Mlp::down, model, nn::Linear::init(Key(1), {"hidden", 32}, {"class", 10}));
  const Mlp halved = nn::tree_at("**.kernel", model, [](const Array& w) { return w * 0.5; });
  std::cout << wider(ones({1, 8})).type_string() << '\n';
}

void lora(Mlp model, const Batch& batch) {
  model.up = nn::with_lora(Key(1), model.up, {.rank = 2});
  const nn::Filter trained = nn::by_path("**.lora.**");
  auto optimizer = optim::Optimizer(model, optim::masked(optim::adamw({.learning_rate = 1e-3}), trained));
  const auto [loss, grads] = nn::value_and_grad(loss_of, trained)(model, batch);
  optimizer.update(model, grads);
  std::cout << nn::num_parameters(nn::filter(model, trained)) << " trained parameters\n";
  model.up = nn::merge_lora(model.up);  // for inference
}

// ---- Runs
// ------------------------------------------------------------------------------------------------------------

struct Net {
  nn::Linear up, down;
  nn::Dropout dropout;

  Array operator()(const Array& x, const std::optional<Key>& key = std::nullopt) const {
    return down(dropout(gelu(up(x)), key));
  }
};

void evaluate(const Net& model, const Array& x) {
  const Array noisy = model(x, Key(1));
  const Net eval = nn::inference_mode(model);
  const Array y = eval(x);  // needs no key; outside value_and_grad nothing is recorded
  std::cout << nn::tree_equal(y, eval(x, Key(2))) << ' ' << nn::tree_equal(y, noisy) << '\n';
}

void seeds() {
  const auto [model_key, dropout_key] = split<2>(Key(42));
  const Key step_key = fold_in(dropout_key, 7);  // of step 7
  const auto model = Mlp::init(model_key, {"embed", 8}, {"hidden", 32});
  for (const int devices : {1, 4}) {
    const NamedSharding rows(make_mesh({{"data", devices}}), P{"data"});
    std::cout << device_put(uniform(step_key, {4}), rows) << '\n';
  }
}

void stop_early(Mlp model, const Batch& batch, const Batch& validation) {
  auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = 0.1}));
  Mlp best = model;  // shares memory until the next update
  float best_loss = std::numeric_limits<float>::infinity();
  for (int step = 0, worse = 0; step < 1000 && worse < 3; ++step) {
    const auto [train_loss, grads] = nn::value_and_grad(loss_of)(model, batch);
    optimizer.update(model, grads);
    const float loss = loss_of(model, validation).item<float>();
    worse = loss < best_loss ? 0 : worse + 1;
    if (worse == 0) best = model, best_loss = loss;
  }
  std::cout << (best_loss < loss_of(model, validation).item<float>()) << '\n';
}

void keep_the_best(const Mlp& model) {
  nn::Checkpointer checkpoints("runs/best", {.keep = {.best = 1, .metric = "validation_loss"}});
  int64_t step = 0;
  for (const double loss : {0.9, 0.4, 0.6, 0.7})
    checkpoints.save(++step, nn::named_state("model", model), {.metrics = {{"validation_loss", loss}}});
  checkpoints.wait();
  for (const int64_t kept : nn::checkpoint_steps("runs/best")) std::cout << "step " << kept << '\n';
}

void log_metrics(Mlp model, const Batch& batch) {
  auto optimizer = optim::Optimizer(model, optim::sgd({.learning_rate = 0.1}));
  std::ofstream log("metrics.jsonl", std::ios::app);
  for (int step = 1; step <= 2; ++step) {
    const auto [loss, grads] = nn::value_and_grad(loss_of)(model, batch);
    optimizer.update(model, grads);
    log << R"({"step": )" << step << R"(, "loss": )" << loss.item<float>() << "}" << std::endl;
  }
}

Array ensemble_loss(const std::vector<Mlp>& models, const Batch& batch) {
  Array total = zeros({});
  for (const Mlp& model : models) total = total + loss_of(model, batch);
  return total;
}

void ensemble(const Batch& batch) {
  std::vector<Mlp> models;
  for (const Key& key : split(Key(0), 3)) models.push_back(Mlp::init(key, {"embed", 8}, {"hidden", 32}));
  auto optimizer = optim::Optimizer(models, optim::adamw({.learning_rate = 1e-3}));
  const auto [loss, grads] = nn::value_and_grad(ensemble_loss)(models, batch);
  optimizer.update(models, grads);
  std::vector<Array> answers;
  for (const Mlp& model : models) answers.push_back(model(batch.x));
  std::cout << mean(stack(answers), 0).type_string() << '\n';
}

int main() {
  const Mlp model = Mlp::init(Key(0), {"embed", 8}, {"hidden", 32});
  const Batch batch{normal(Key(1), {16, 8}), normal(Key(2), {16, 8})};
  const MeshRules mesh_rules{make_mesh({{"data", 4}, {"model", 2}}),
                             {{"batch", "data"}, {"hidden", "model"}, {"embed", replicated}}};
  const Mlp placed = nn::filter_shard(model, mesh_rules);
  const Batch rows{device_put(batch.x, {"batch", "embed"}, mesh_rules),
                   device_put(batch.y, {"batch", "embed"}, mesh_rules)};

  count(model);
  print_arrays();
  exchange(placed.up.kernel);
  intermediates(placed, rows.x);
  to_device(model, batch, "cpu");
  gather_a_parameter(placed);
  forbid(placed, rows);
  clip_gradients(model, batch);
  warmup(model);
  stable_decay();
  weight_decay(model);
  average(model, batch);
  freeze(model, batch);
  curvature(placed, rows);
  accumulate(placed, rows);
  mixed_precision(placed, rows);
  std::cout << Deep{{model, model}}(batch.x).type_string() << '\n';
  std::cout << Gate::init({"embed", 8})(batch.x).type_string() << '\n';
  custom_loss(model, {batch.x, randint(Key(3), {16}, 0, 8)});
  replace_a_layer(model);
  lora(model, batch);
  evaluate({model.up, model.down, {.rate = 0.1}}, batch.x);
  seeds();
  stop_early(model, batch, {normal(Key(4), {16, 8}), normal(Key(5), {16, 8})});
  keep_the_best(model);
  log_metrics(model, batch);
  std::cout << std::ifstream("metrics.jsonl").rdbuf();
  ensemble(batch);
}
