// Runs every case of a file shard_map*.json, with shared and with private replicas.
#include "tests/runner/shard_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "sharding/accounting/ledger.h"
#include "sharding/autodiff/tape.h"
#include "sharding/files/json.h"
#include "sharding/operations.h"
#include "sharding/shard_map/shard_map.h"
#include "tests/runner/array_record.h"
#include "tests/runner/propagation.h"
#include "tests/runner/reference_values.h"
#include "tests/runner/report.h"
#include "tests/runner/transformer_file.h"

namespace tessera::runner {
namespace {

constexpr double block_tolerance = 1e-5, difference_tolerance = 1e-3;

std::vector<PartitionSpec> specs_of(const Json& list) {
  std::vector<PartitionSpec> specs;
  for (const Json& spec : list.as_array()) specs.push_back(spec_of(spec));
  return specs;
}

// Returns the first difference; empty if there is none.
std::string mismatch(const Array& x, const Json& expected, double allowed) {
  const std::vector<double> values = astype(x, float64).to_host<double>();
  const auto& numbers = expected.as_array();
  if (values.size() != numbers.size()) return fmt::format("{} elements, got {}", numbers.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i)
    if (const double e = numbers[i].to_number<double>(); !(std::abs(values[i] - e) <= allowed))
      return fmt::format("element {} {:.9g}, got {:.9g}", i, e, values[i]);
  return {};
}

class MappedCase {
 public:
  MappedCase(const Json& file, const Json& json) : file_(file), json_(json), id_(json.at("id").as_string()) {}

  void run(Report& report) {
    std::vector<std::string> wrong = run_with(false);
    for (const std::string& what : run_with(true)) wrong.push_back("private replicas: " + what);
    report.check(wrong.empty(), id_, fmt::format("{}", fmt::join(wrong, " | ")), "what is said there");
  }

 private:
  std::vector<std::string> run_with(bool private_replicas) {
    wrong_.clear();
    try {
      const auto body = shard_map_bodies().find(std::string(json_.at("name").as_string()));
      if (body == shard_map_bodies().end()) return {"a body in C++ under its name, got none"};
      body_ = body->second;
      mesh_ = mesh_of(file_.at("meshes").at(json_.at("mesh").as_string()), private_replicas);
      inputs_.clear();
      for (const Json& input : json_.at("inputs").as_array()) inputs_.push_back(input_of(input));
      json_.at("ok").as_bool() ? accepted() : rejected();
    } catch (const std::exception& error) {
      wrong_.push_back(fmt::format("a run to the end, got {}", error.what()));
    }
    return wrong_;
  }

  static Array input_of(const Json& input) {
    return contents(input.at("init"), shape_of(input.at("shape")), *dtype_of(input.at("dtype").as_string()));
  }

  std::vector<Array> call(const std::vector<Array>& inputs) {
    ShardMapOptions options{.axis_names = {}, .check_vma = json_.at("check_vma").as_bool()};
    if (const Json* axes = json_.as_object().if_contains("axis_names"))
      for (const Json& axis : axes->as_array()) options.axis_names.emplace_back(axis.as_string());
    const auto body = [this](const std::vector<Array>& blocks) {
      shapes_.clear();
      for (const Array& block : blocks) shapes_.push_back(block.shape());
      return body_(blocks);
    };
    return shard_map(body, mesh_, specs_of(json_.at("in_specs")), specs_of(json_.at("out_specs")), options)(inputs);
  }

  void expect(const std::string& what) {
    if (!what.empty()) wrong_.push_back(what);
  }

  void rejected() {
    const std::string expected(json_.at("error").at("kind").as_string());
    try {
      call(inputs_);
      expect(fmt::format("an error of kind {}, got none", expected));
    } catch (const Error& error) {
      if (word_of(error.kind()) != expected) expect(fmt::format("an error of kind {}, got {}", expected, error.what()));
    }
  }

  void accepted() {
    std::vector<Array> outputs;
    int64_t bytes = 0;
    {
      const CommLedger ledger;
      outputs = call(inputs_);
      bytes = ledger.bytes();
    }
    if (const int64_t most = bytes_of(json_.at("collectives")); bytes > most)
      expect(fmt::format("at most {} bytes moved, got {}", most, bytes));
    check_blocks();
    const auto& expected = json_.at("outputs").as_array();
    if (outputs.size() != expected.size()) return expect(fmt::format("{} outputs", expected.size()));
    for (size_t i = 0; i < expected.size(); ++i) check_output(outputs[i], expected[i], i);
    if (json_.as_object().contains("grad")) check_gradients(json_.at("grad"));
  }

  void check_blocks() {
    const auto& expected = json_.at("local_inputs").as_array();
    for (size_t i = 0; i < expected.size(); ++i)
      if (shapes_.at(i) != shape_of(expected[i]))
        expect(fmt::format("block {} of shape {}, got {}", i, to_string(shape_of(expected[i])), to_string(shapes_[i])));
  }

  void check_output(const Array& x, const Json& expected, size_t i) {
    const Shape shape = shape_of(expected.at("shape")), local = shape_of(expected.at("local_shape"));
    if (x.shape() != shape || name_of(x.dtype()) != std::string_view(expected.at("dtype").as_string()))
      return expect(fmt::format("output {} {} of {}, got {}", i, std::string(expected.at("dtype").as_string()),
                                to_string(shape), x.type_string()));
    if (x.sharding().shard_shape(shape) != local)
      expect(fmt::format("output {} in blocks of {}, got {}", i, to_string(local), x.type_string()));
    if (const std::string what = mismatch(x, expected.at("values"), block_tolerance); !what.empty())
      expect(fmt::format("output {}: {}", i, what));
  }

  // Compares the gradients of sum(outputs * weights) with respect to `wrt`. Where JAX has no gradient, the file has
  // central differences.
  void check_gradients(const Json& grad) {
    const bool exact = grad.at("ok").as_bool();
    std::vector<Array> parameters;
    for (const Json& i : grad.at("wrt").as_array()) parameters.push_back(inputs_.at(i.to_number<size_t>()));
    Tape tape(parameters);
    std::vector<Array> inputs = inputs_;
    for (size_t k = 0; k < parameters.size(); ++k) inputs[grad.at("wrt").at(k).to_number<size_t>()] = tape.shadows()[k];
    Array loss = zeros({});
    for (const Array& y : call(inputs)) loss = loss + sum(y * weights(file_.at("weights"), y.shape(), y.dtype()));
    const std::vector<Array> gradients = tape.gradients(loss);
    const Json& values = grad.at(exact ? "values" : "fd_values");
    for (size_t k = 0; k < gradients.size(); ++k)
      if (const std::string what = mismatch(gradients[k], values.at(k), exact ? block_tolerance : difference_tolerance);
          !what.empty())
        expect(fmt::format("gradient {}: {}", k, what));
  }

  const Json& file_;
  const Json& json_;
  std::string id_;
  Mesh mesh_;
  ShardMapBody body_ = nullptr;
  std::vector<Array> inputs_;
  std::vector<Shape> shapes_;
  std::vector<std::string> wrong_;
};

}  // namespace

void run_shard_map(const std::filesystem::path& file, Report& report) {
  const Json json = parse_json_file(file);
  for (const Json& c : json.at("cases").as_array()) MappedCase(json, c).run(report);
}

}  // namespace tessera::runner
