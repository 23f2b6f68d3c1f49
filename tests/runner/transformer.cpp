// Compares trainings from the file's weights and batches with JAX: losses, norms, gradients and parameters.
#include "examples/transformer.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <optional>

#include "data/batches/to_global.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/pipeline.h"
#include "optim/optimizer.h"
#include "sharding/runtime/processes.h"
#include "tests/runner/report.h"
#include "tests/runner/transformer_file.h"

namespace tessera::runner {
namespace {

// Options of a training that affect neither its numbers nor the sharding of its parameters.
struct Mode {
  const char* name = "";  // appended to the strategy's name
  bool private_replicas = false;
  bool reshard_after_forward = true;
  bool zero1 = false;
  bool remat = false;
  int64_t num_micro_batches = 1;
  std::optional<nn::PipelineSchedule> schedule;  // for layers on pipeline stages
};

constexpr Mode modes[] = {{},
                          {.name = " (private)", .private_replicas = true},
                          {.name = " (gathers kept)", .reshard_after_forward = false},
                          {.name = " (zero1)", .zero1 = true},
                          {.name = " (remat)", .remat = true},
                          {.name = " (2 micro-batches)", .num_micro_batches = 2}};

// Meshes with pipeline stages, one layer per stage. JAX's files have no rules for them. The mesh may also have the axes
// data and model.
struct Stages {
  const char* name;
  std::vector<MeshAxis> mesh;
  Mode mode;

  int64_t size(std::string_view axis) const {
    for (const MeshAxis& a : mesh)
      if (a.name == axis) return a.size;
    return 1;
  }
};

constexpr nn::PipelineSchedule gpipe = nn::PipelineSchedule::gpipe, one_f_one_b = nn::PipelineSchedule::one_f_one_b;

const Stages stages[] = {
    {"pipe2", {{"pipe", 2}}, {}},
    {"pipe2_data2", {{"pipe", 2}, {"data", 2}}, {.num_micro_batches = 4, .schedule = gpipe}},
    {"pipe2_model2", {{"pipe", 2}, {"model", 2}}, {.num_micro_batches = 4, .schedule = one_f_one_b}},
    {"data2_pipe2", {{"data", 2}, {"pipe", 2}}, {.remat = true, .num_micro_batches = 2, .schedule = one_f_one_b}},
    {"pipe2_data2_model2", {{"pipe", 2}, {"data", 2}, {"model", 2}}, {.num_micro_batches = 4, .schedule = one_f_one_b}},
    {"pipe4", {{"pipe", 4}}, {.num_micro_batches = 4, .schedule = one_f_one_b}},
    {"pipe4_data2", {{"pipe", 4}, {"data", 2}}, {.zero1 = true, .num_micro_batches = 4, .schedule = one_f_one_b}},
    {"pipe4_model2", {{"pipe", 4}, {"model", 2}}, {.private_replicas = true}},
    {"pipe4_data2_model2", {{"pipe", 4}, {"data", 2}, {"model", 2}}, {.num_micro_batches = 4, .schedule = gpipe}},
};

struct Training {
  std::string name;
  Mode mode;
  MeshRules mesh_rules;
  const Json* strategy = nullptr;  // null: not a strategy of JAX

  // The mesh axes that shard the batch.
  std::vector<std::string> batch_axes() const {
    for (const Rule& rule : mesh_rules.rules())
      if (rule.logical == "batch") return rule.mesh_axes;
    return {};
  }

  bool is_possible(int64_t rows) const {
    int64_t parts = mode.num_micro_batches;
    for (const std::string& axis : batch_axes())
      if (mesh_rules.mesh().has_axis(axis)) parts *= mesh_rules.mesh().size(axis);
    return rows % parts == 0;
  }
};

auto transform_in(const Json& json) {
  const Json& adam = json.at("adamw");
  const Json& lr = json.at("warmup_cosine_decay_schedule");
  const auto number = [](const Json& object, const char* key) { return object.at(key).to_number<double>(); };
  return optim::chain(optim::clip_by_global_norm(json.at("clip_by_global_norm").to_number<double>()),
                      optim::adamw({.learning_rate = optim::warmup_cosine_decay_schedule(
                                        {.init_value = number(lr, "init_value"),
                                         .peak_value = number(lr, "peak_value"),
                                         .warmup_steps = lr.at("warmup_steps").to_number<int64_t>(),
                                         .decay_steps = lr.at("decay_steps").to_number<int64_t>(),
                                         .end_value = number(lr, "end_value")}),
                                    .b1 = number(adam, "b1"),
                                    .b2 = number(adam, "b2"),
                                    .eps = number(adam, "eps"),
                                    .weight_decay = number(adam, "weight_decay"),
                                    .mask = optim::matrices_only}));
}

int64_t bytes_on_device(const Array& x) {
  int64_t bytes = item_size(x.dtype());
  for (int64_t size : x.sharding().shard_shape(x.shape())) bytes *= size;
  return bytes;
}

// Returns the unsharded values. If other processes hold parts of them, all processes must call this.
std::vector<float> float_values(const Array& x) { return (process_count() == 1 ? x : gather(x)).to_host<float>(); }

// Places the rows of this process. `batch` has the rows of all processes.
TokenBatch placed_batch(TokenBatch batch, const MeshRules& mesh_rules) {
  for (const nn::Leaf& leaf : nn::leaves(batch)) {
    const Array& x = *leaf.value;
    *leaf.value = place_batch(
        x, mesh_rules, mesh_rules.activations().resolve(*leaf.axes, x.shape(), "reference_runner", leaf.path).spec);
  }
  return batch;
}

// Returns the largest difference over the elements of `expected`, which may be shorter than `got` (padding).
double largest_difference(const std::vector<float>& got, const std::vector<float>& expected) {
  if (got.size() < expected.size()) return INFINITY;
  double most = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(double(got[i]) - expected[i]);
    if (!(difference <= most)) most = difference;
  }
  return most;
}

// The gradient of attention's key bias is zero in exact arithmetic. Adam amplifies its rounding noise.
bool is_noise(const std::string& path) { return path.ends_with("attn.k.bias"); }

template <class Model>
class TrainingRun {
 public:
  TrainingRun(Model model, const TransformerFile& file, Report& report) : file_(file), report_(report), start_(model) {
    for (const nn::Leaf& leaf : nn::leaves(start_)) {
      const Array value = file.array("params/" + leaf.path);
      report_.check(value.shape() == leaf.value->shape(), leaf.path, to_string(value.shape()),
                    to_string(leaf.value->shape()));
      *leaf.value = value;
    }
  }

  // The first case must be the mesh of one device: its final parameters are the reference of the others. Several
  // processes have no such mesh, and are compared only with JAX.
  void run(const Training& c) {
    Model model = nn::filter_shard(start_, c.mesh_rules);
    model.remat = c.mode.remat;
    auto optimizer = optim::Optimizer(model, transform_in(file_.numbers.at("optimizer")),
                                      {.shard_state_over = c.mode.zero1 ? c.batch_axes() : std::vector<std::string>()});
    if (c.strategy) check_placement(c, model, optimizer);
    check_logits(c, model);
    for (size_t step = 0; step < file_.steps(); ++step) {
      const auto [loss, grads] = loss_and_gradients(c, model, step);
      const std::string where = fmt::format("{} step {}", c.name, step);
      near_relative(loss.template item<double>(), "loss", step, 1e-5, where);
      near_relative(optim::global_norm(grads).template item<double>(), "grad_norm", step, 1e-4, where);
      if (step == 0) check_gradients(grads, where);
      optimizer.update(model, grads);
      near_relative(optimizer.learning_rate(), "lr", step, 1e-5, where);
    }
    check_final(c, model);
  }

 private:
  static auto loss_and_gradients(const Training& c, const Model& model, const TokenBatch& batch) {
    const auto loss_fn = examples::next_token_loss<Model, TokenBatch>;
    const GradientOptions options{.reshard_after_forward = c.mode.reshard_after_forward, .reduce = !c.mode.zero1};
    if (c.mode.schedule)
      return nn::pipeline(loss_fn, {.num_micro_batches = c.mode.num_micro_batches, .schedule = *c.mode.schedule},
                          options)(model, batch);
    return nn::accumulate_gradients(loss_fn, c.mode.num_micro_batches, options)(model, batch);
  }
  auto loss_and_gradients(const Training& c, const Model& model, size_t step) const {
    return loss_and_gradients(c, model, placed_batch(file_.batch(step), c.mesh_rules));
  }

  void near_relative(double got, const char* key, size_t step, double tolerance, const std::string& where) {
    const double expected = file_.number(key, step);
    report_.near(got, expected, tolerance * std::abs(expected), where + " " + key);
  }

  template <class Optimizer>
  void check_placement(const Training& c, const Model& model, const Optimizer& optimizer) {
    int64_t bytes = 0, state = 2 * sizeof(int32_t);  // the file includes two counters, of Adam and its schedule
    for (const nn::Leaf& leaf : nn::leaves(model)) {
      const std::string where = c.name + " " + leaf.path;
      const Json& expected = c.strategy->at("params").at(leaf.path);
      const NamedSharding sharding = leaf.value->sharding();
      const PartitionSpec spec = spec_of(expected.at(0));
      report_.check(sharding.spec() == spec, where + " spec", spec.to_string(), sharding.spec().to_string());
      const Shape shape = shape_of(expected.at(1)), local = sharding.shard_shape(leaf.value->shape());
      report_.check(local == shape, where + " local shape", to_string(shape), to_string(local));
      check_equal(bytes_on_device(*leaf.value), expected.at(2), where + " bytes");
      bytes += bytes_on_device(*leaf.value);
    }
    for (const nn::Leaf& leaf : nn::leaves(optimizer)) state += bytes_on_device(*leaf.value);
    const Json& per_device = c.strategy->at("bytes_per_device");
    check_equal(bytes, per_device.at("params"), c.name + " bytes of params");
    if (!c.mode.zero1) check_equal(state, per_device.at("adam_state"), c.name + " bytes of the optimizer");
  }

  void check_equal(int64_t got, const Json& expected, const std::string& where) {
    report_.check(got == expected.to_number<int64_t>(), where, std::to_string(expected.to_number<int64_t>()),
                  std::to_string(got));
  }

  void check_logits(const Training& c, const Model& model) {
    const TokenBatch batch = placed_batch(file_.batch(0), c.mesh_rules);
    const Array logits = model(batch.inputs);
    report_.near(largest_difference(float_values(logits), file_.floats("logits0")), 0, 1e-5, c.name + " logits");
  }

  void check_gradients(const Model& grads, const std::string& where) {
    for (const nn::Leaf& leaf : nn::leaves(grads))
      report_.near(largest_difference(float_values(*leaf.value), file_.floats("grads/" + leaf.path)), 0, 1e-6,
                   where + " gradient of " + leaf.path);
  }

  void check_final(const Training& c, const Model& model) {
    std::map<std::string, std::vector<float>> parameters;
    for (const nn::Leaf& leaf : nn::leaves(model)) {
      const std::vector<float> values = float_values(*leaf.value);
      double sum = 0, squares = 0;
      for (float v : values) sum += v, squares += double(v) * v;
      const Json& final = file_.numbers.at("parameters").at(leaf.path).at("final");
      const double l2 = final.at("l2").to_number<double>();
      const double tolerance = is_noise(leaf.path) ? 1e-4 * values.size() : 1e-4 * l2;
      report_.near(sum, final.at("sum").to_number<double>(), tolerance, c.name + " final sum of " + leaf.path);
      report_.near(std::sqrt(squares), l2, tolerance, c.name + " final l2 of " + leaf.path);
      if (alone_.contains(leaf.path))
        report_.near(largest_difference(values, alone_.at(leaf.path)), 0, is_noise(leaf.path) ? 1e-4 : 1e-5,
                     c.name + " final " + leaf.path + " against one device");
      parameters[leaf.path] = values;
    }
    if (c.mesh_rules.mesh().size() == 1) alone_ = std::move(parameters);
  }

  const TransformerFile& file_;
  Report& report_;
  Model start_;
  std::map<std::string, std::vector<float>> alone_;
};

// Returns whether the devices can be divided evenly among the processes.
bool has_a_place(size_t devices) { return devices % static_cast<size_t>(process_count()) == 0; }

template <class Model>
void run_on_stages(TrainingRun<Model>& run, int64_t layers) {
  for (const Stages& s : stages) {
    if (s.size("pipe") != layers || !has_a_place(s.size("pipe") * s.size("data") * s.size("model"))) continue;
    const Mesh mesh = make_mesh(s.mesh, {.private_replicas = s.mode.private_replicas});
    const Rules rules = examples::with_all_names({{"layers", "pipe"},
                                                  {"batch", "data"},
                                                  {"heads", "model"},
                                                  {"kv_heads", "model"},
                                                  {"mlp", "model"},
                                                  {"vocab", "model"}});
    run.run({s.name, s.mode, MeshRules(mesh, rules, {.missing_axes = MissingAxes::ok})});
  }
}

template <class Model>
void run_all(Model model, const TransformerFile& file, Report& report) {
  TrainingRun run(std::move(model), file, report);
  if (process_count() == 1) run.run({"one", {}, MeshRules(make_mesh({{"data", 1}}), examples::with_all_names({}))});
  for (const Mode& mode : modes) {
    if (report.plain && *mode.name) break;
    for (const auto& [name, strategy] : file.strategies.at("strategies").as_object()) {
      if (!has_a_place(strategy.at("mesh").at("device_ids").as_array().size())) continue;
      const MeshRules mesh_rules(mesh_of(strategy.at("mesh"), mode.private_replicas), rules_of(strategy.at("rules")),
                                 {.missing_axes = MissingAxes::ok});
      const Training c{std::string(name) + mode.name, mode, mesh_rules, &strategy};
      if (c.is_possible(file.batch(0).inputs.value.shape(0))) run.run(c);
    }
  }
  run_on_stages(run, file.config().at("layers").to_number<int64_t>());
}

}  // namespace

void run_transformer(const std::filesystem::path& path, Report& report) {
  const TransformerFile file = TransformerFile::open(path);
  if (file.kind() == "gpt") return run_all(examples::Gpt::init(Key(0), gpt_config(file.config())), file, report);
  if (file.kind() == "llama") return run_all(nn::CausalLM::init(Key(0), llama_config(file.config())), file, report);
  fail(ErrorKind::invalid_argument, "reference_runner",
       fmt::format("{}: a model of kind \"{}\", expected gpt or llama.", path.string(), file.kind()));
}

}  // namespace tessera::runner
