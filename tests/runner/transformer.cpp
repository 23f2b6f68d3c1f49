// The reference curves: from the file's weights and batches, JAX's losses, norms, gradients and parameters.
#include "examples/transformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/value.hpp>
#include <cmath>
#include <map>
#include <optional>

#include "data/to_global.h"
#include "nn/filter_shard.h"
#include "nn/value_and_grad.h"
#include "optim/optimizer.h"
#include "sharding/json.h"
#include "sharding/safetensors.h"
#include "tests/runner/report.h"

namespace tessera::runner {
namespace {

using examples::Gpt;
using Json = boost::json::value;

struct TokenBatch {
  NamedArray inputs{"batch", none};
  NamedArray targets{"batch", none};
};

// ---- what a file says

std::string text(const Json& value) { return std::string(value.as_string()); }

std::vector<std::string> names(const Json& value) {
  std::vector<std::string> result;
  if (value.is_string()) return {text(value)};
  for (const Json& item : value.as_array()) result.push_back(text(item));
  return result;
}

PartitionSpec spec_of(const Json& value) {
  std::vector<SpecEntry> entries;
  for (const Json& entry : value.is_object() ? value.at("parts").as_array() : value.as_array())
    entries.push_back(entry.is_null() ? SpecEntry() : SpecEntry(names(entry)));
  return PartitionSpec(std::move(entries));
}

Shape shape_of(const Json& value) {
  Shape shape;
  for (const Json& size : value.as_array()) shape.push_back(size.to_number<int64_t>());
  return shape;
}

Mesh mesh_of(const Json& value, bool private_replicas) {
  std::vector<MeshAxis> axes;
  for (const Json& axis : value.at("axes").as_array())
    axes.push_back({text(axis.at(0)), axis.at(1).to_number<int64_t>()});
  MeshOptions options{.private_replicas = private_replicas};
  for (const Json& id : value.at("device_ids").as_array()) options.devices.push_back(id.to_number<int>());
  return make_mesh(std::move(axes), std::move(options));
}

Rules rules_of(const Json& value) {
  Rules rules;
  for (const auto& [name, axes] : value.as_object()) rules.push_back(Rule(std::string(name), names(axes)));
  return examples::with_all_names(std::move(rules));
}

examples::GptConfig config_of(const Json& c) {
  return {.vocab = c.at("vocab").to_number<int64_t>(),
          .embed = c.at("d").to_number<int64_t>(),
          .heads = c.at("heads").to_number<int64_t>(),
          .layers = c.at("layers").to_number<int64_t>(),
          .seq = c.at("seq").to_number<int64_t>(),
          .mlp = c.at("mlp").to_number<int64_t>(),
          .eps = c.at("eps").to_number<double>()};
}

auto transform_of(const Json& json) {
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

std::vector<float> floats(const SafetensorsFile& file, const std::string& name) {
  return array_from_bytes(file.bytes(name), file.info(name).dtype, file.info(name).shape).to_host<float>();
}

// A file of further layouts has no numbers of its own: they stand in the file of its model, beside it or in the
// project's own folder.
std::filesystem::path numbers_of(const std::filesystem::path& file, const Json& json) {
  if (json.as_object().contains("loss")) return file;
  const std::string name = "transformer_" + text(json.at("config").at("kind")) + ".json";
  const std::filesystem::path beside = file.parent_path() / name;
  return std::filesystem::exists(beside) ? beside : std::filesystem::path(TESSERA_REFERENCE_DIR) / name;
}

// ---- one layout

struct Case {
  std::string name;
  Layout layout;
  std::optional<PartitionSpec> residual;
  const Json* strategy = nullptr;  // null: the mesh of one
};

class Run {
 public:
  Run(const Json& numbers, const SafetensorsFile& tensors, Report& report)
      : numbers_(numbers), tensors_(tensors), report_(report), config_(config_of(numbers.at("config"))) {}

  // The parameters at the end, by path.
  std::map<std::string, std::vector<float>> run(const Case& c) {
    Gpt model = nn::filter_shard(with_weights_of_file(), c.layout);
    auto optimizer = optim::Optimizer(model, transform_of(numbers_.at("optimizer")));
    if (c.strategy) check_placement(c, model, optimizer);
    const auto constrain = [&](const Array& x) { return c.residual ? with_sharding_constraint(x, *c.residual) : x; };
    check_logits(c, model, constrain);
    const auto loss_fn = [&](const Gpt& m, const TokenBatch& b) {
      return cross_entropy(m(b.inputs, constrain), b.targets);
    };
    for (size_t step = 0; step < numbers_.at("loss").as_array().size(); ++step) {
      const auto [loss, grads] = nn::value_and_grad(loss_fn)(model, batch_of(step, c.layout));
      const std::string where = fmt::format("{} step {}", c.name, step);
      near_relative(loss.item<double>(), "loss", step, 1e-5, where + " loss");
      near_relative(optim::global_norm(grads).item<double>(), "grad_norm", step, 1e-4, where + " grad_norm");
      if (step == 0) check_gradients(grads, where);
      optimizer.update(model, grads);
      near_relative(optimizer.learning_rate(), "lr", step, 1e-5, where + " lr");
    }
    return check_final(c, model);
  }

 private:
  Gpt with_weights_of_file() {
    Gpt model = Gpt::init(Key(0), config_);
    for (const nn::Leaf& leaf : nn::leaves(model)) {
      const std::string name = "params/" + leaf.path;
      if (!tensors_.contains(name))
        fail(ErrorKind::bad_file, "reference_runner", fmt::format("{} is not in the file.", name));
      const TensorInfo& info = tensors_.info(name);
      report_.check(info.shape == leaf.value->shape(), leaf.path, to_string(info.shape),
                    to_string(leaf.value->shape()));
      *leaf.value = array_from_bytes(tensors_.bytes(name), info.dtype, info.shape);
    }
    return model;
  }

  TokenBatch batch_of(size_t step, const Layout& layout) const {
    const TensorInfo& info = tensors_.info("tokens");
    const int64_t rows = info.shape[1], width = info.shape[2];
    const auto all = array_from_bytes(tensors_.bytes("tokens"), info.dtype, info.shape).to_host<int32_t>();
    const auto* begin = all.data() + static_cast<int64_t>(step) * rows * width;
    std::vector<int32_t> inputs, targets;
    for (int64_t r = 0; r < rows; ++r) {
      inputs.insert(inputs.end(), begin + r * width, begin + (r + 1) * width - 1);
      targets.insert(targets.end(), begin + r * width + 1, begin + (r + 1) * width);
    }
    TokenBatch batch;
    batch.inputs = array<int32_t>(inputs, {rows, width - 1});
    batch.targets = array<int32_t>(targets, {rows, width - 1});
    return data::from_process_local(batch, layout);
  }

  void near_relative(double got, const char* key, size_t step, double tolerance, const std::string& where) {
    const double expected = numbers_.at(key).at(step).to_number<double>();
    report_.near(got, expected, tolerance * std::abs(expected), where);
  }

  template <class Optimizer>
  void check_placement(const Case& c, const Gpt& model, const Optimizer& optimizer) {
    int64_t bytes = 0;
    for (const nn::Leaf& leaf : nn::leaves(model)) {
      const std::string where = c.name + " " + leaf.path;
      const Json& expected = c.strategy->at("params").at(leaf.path);
      const PartitionSpec spec = spec_of(expected.at(0));
      report_.check(leaf.value->sharding().spec() == spec, where + " spec", spec.to_string(),
                    leaf.value->sharding().spec().to_string());
      const Shape local = leaf.value->sharding().shard_shape(leaf.value->shape());
      report_.check(local == shape_of(expected.at(1)), where + " local shape", to_string(shape_of(expected.at(1))),
                    to_string(local));
      const int64_t local_bytes = bytes_on_device(*leaf.value);
      check_equal(local_bytes, expected.at(2), where + " bytes");
      bytes += local_bytes;
    }
    const Json& per_device = c.strategy->at("bytes_per_device");
    check_equal(bytes, per_device.at("params"), c.name + " bytes of params");
    int64_t state = 2 * sizeof(int32_t);  // the file counts the two counters of Adam and its schedule
    for (const nn::Leaf& leaf : nn::leaves(optimizer)) state += bytes_on_device(*leaf.value);
    check_equal(state, per_device.at("adam_state"), c.name + " bytes of the optimizer");
  }

  static int64_t bytes_on_device(const Array& x) {
    int64_t bytes = item_size(x.dtype());
    for (int64_t size : x.sharding().shard_shape(x.shape())) bytes *= size;
    return bytes;
  }

  void check_equal(int64_t got, const Json& expected, const std::string& where) {
    report_.check(got == expected.to_number<int64_t>(), where, std::to_string(expected.to_number<int64_t>()),
                  std::to_string(got));
  }

  void check_logits(const Case& c, const Gpt& model, const examples::Constrain& constrain) {
    const std::vector<float> expected = floats(tensors_, "logits0");
    const std::vector<float> got = model(batch_of(0, c.layout).inputs, constrain).to_host<float>();
    report_.near(largest_difference(got, expected), 0, 1e-5, c.name + " logits");
  }

  // Over the elements of `expected`, which may be the first of more.
  static double largest_difference(const std::vector<float>& got, const std::vector<float>& expected) {
    if (got.size() < expected.size()) return INFINITY;
    double most = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double difference = std::abs(double(got[i]) - expected[i]);
      if (!(difference <= most)) most = difference;
    }
    return most;
  }

  void check_gradients(const Gpt& grads, const std::string& where) {
    for (const nn::Leaf& leaf : nn::leaves(grads))
      report_.near(largest_difference(leaf.value->to_host<float>(), floats(tensors_, "grads/" + leaf.path)), 0, 1e-6,
                   where + " gradient of " + leaf.path);
  }

  // The gradient of attention's key bias is zero in exact arithmetic; Adam magnifies its rounding noise.
  static bool is_noise(const std::string& path) { return path.ends_with("attn.k.bias"); }

  std::map<std::string, std::vector<float>> check_final(const Case& c, const Gpt& model) {
    std::map<std::string, std::vector<float>> parameters;
    for (const nn::Leaf& leaf : nn::leaves(model)) {
      const std::vector<float> values = leaf.value->to_host<float>();
      double sum = 0, squares = 0;
      for (float v : values) sum += v, squares += double(v) * v;
      const Json& final = numbers_.at("parameters").at(leaf.path).at("final");
      const double l2 = final.at("l2").to_number<double>();
      const double tolerance = is_noise(leaf.path) ? 1e-4 * values.size() : 1e-4 * l2;
      report_.near(sum, final.at("sum").to_number<double>(), tolerance, c.name + " final sum of " + leaf.path);
      report_.near(std::sqrt(squares), l2, tolerance, c.name + " final l2 of " + leaf.path);
      if (c.strategy) {
        const double most = largest_difference(values, alone_.at(leaf.path));
        report_.near(most, 0, is_noise(leaf.path) ? 1e-4 : 1e-5,
                     c.name + " final " + leaf.path + " against one device");
      }
      parameters[leaf.path] = values;
    }
    if (!c.strategy) alone_ = parameters;
    return parameters;
  }

  const Json& numbers_;
  const SafetensorsFile& tensors_;
  Report& report_;
  examples::GptConfig config_;
  std::map<std::string, std::vector<float>> alone_;
};

}  // namespace

void run_transformer(const std::filesystem::path& file, Report& report) {
  const Json layouts = parse_json_file(file);
  const std::filesystem::path numbers_file = numbers_of(file, layouts);
  const Json numbers = parse_json_file(numbers_file);
  if (const std::string kind = text(numbers.at("config").at("kind")); kind != "gpt")
    fail(ErrorKind::bad_argument, "reference_runner",
         fmt::format("{}: a model of kind \"{}\", expected gpt.", file.string(), kind));
  const SafetensorsFile tensors =
      SafetensorsFile::open(std::filesystem::path(numbers_file).replace_extension(".safetensors"));
  Run run(numbers, tensors, report);
  run.run({"one", Layout(make_mesh({{"data", 1}}), examples::with_all_names({})), {}});
  for (const bool private_replicas : {false, true})
    for (const auto& [name, strategy] : layouts.at("strategies").as_object()) {
      const Layout layout(mesh_of(strategy.at("mesh"), private_replicas), rules_of(strategy.at("rules")));
      run.run({std::string(name) + (private_replicas ? " (private)" : ""), layout,
               spec_of(strategy.at("residual_stream_spec")), &strategy});
    }
}

}  // namespace tessera::runner
