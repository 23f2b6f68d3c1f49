// Runs every case of a file propagation*.json, with shared and with private replicas.
#include "tests/runner/propagation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "sharding/accounting/ledger.h"
#include "sharding/autodiff/tape.h"
#include "sharding/files/json.h"
#include "sharding/operations.h"
#include "sharding/redistribution/redistribute.h"
#include "tests/runner/reference_values.h"
#include "tests/runner/report.h"
#include "tests/runner/transformer_file.h"

namespace tessera::runner {

bool Call::has(const char* name) const {
  const Json* value = attributes_.as_object().if_contains(name);
  return value && !value->is_null();
}

int64_t Call::integer(const char* name) const { return json(name).to_number<int64_t>(); }
double Call::number(const char* name) const { return json(name).to_number<double>(); }
bool Call::flag(const char* name) const { return has(name) && json(name).as_bool(); }
std::string Call::text(const char* name) const { return std::string(json(name).as_string()); }

std::vector<int64_t> Call::integers(const char* name) const {
  if (!has(name)) return {};
  if (!json(name).is_array()) return {integer(name)};
  std::vector<int64_t> values;
  for (const Json& value : json(name).as_array()) values.push_back(value.to_number<int64_t>());
  return values;
}

Dims Call::dims(const char* name) const {
  const std::vector<int64_t> values = integers(name);
  return Dims(values.begin(), values.end());
}

std::vector<std::pair<int64_t, int64_t>> Call::pairs(const char* name, int ndim) const {
  const auto pair_of = [](const Json& pair) {
    return std::pair(pair.at(0).to_number<int64_t>(), pair.at(1).to_number<int64_t>());
  };
  const Json& value = json(name);
  if (!value.is_array()) return std::vector(ndim, std::pair(integer(name), integer(name)));
  if (!value.at(0).is_array()) return std::vector(ndim, pair_of(value));
  std::vector<std::pair<int64_t, int64_t>> values;
  for (const Json& pair : value.as_array()) values.push_back(pair_of(pair));
  return values;
}

std::optional<int64_t> Call::optional_integer(const char* name) const {
  return has(name) ? std::optional(integer(name)) : std::nullopt;
}

std::optional<int> Call::optional_dim(const char* name) const {
  return has(name) ? std::optional(dim(name)) : std::nullopt;
}

ArrayOrNumber Call::term(const char* name, std::source_location where) const {
  return json(name).is_double() ? ArrayOrNumber(number(name), where) : ArrayOrNumber(integer(name), where);
}

std::optional<PartitionSpec> Call::out() const {
  return has("out_sharding") ? std::optional(spec_of(json("out_sharding"))) : std::nullopt;
}

NamedSharding Call::sharding() const { return NamedSharding(mesh_, out().value_or(PartitionSpec())); }

int64_t bytes_of(const Json& collectives) {
  int64_t bytes = 0;
  for (const auto& [kind, numbers] : collectives.as_object())
    if (kind != "ops") bytes += numbers.at("bytes").to_number<int64_t>();
  return bytes;
}

namespace {

constexpr double value_tolerance = 2e-5, gradient_tolerance = 2e-4;

PartitionSpec parts(const PartitionSpec& spec) { return PartitionSpec(spec.entries()); }

std::string ledger_text(const CommLedger& ledger) {
  std::string text;
  for (const CommRecord& r : ledger.records())
    text += fmt::format("{} {} over {}: {} bytes, {} -> {}; ", r.operation, r.kind, r.mesh_axes, r.bytes, r.operand,
                        r.result);
  return text.empty() ? "nothing" : text.substr(0, text.size() - 2);
}

// Kernels may round the last bit differently if the memory layout differs, and sums may have another order.
bool close(const std::vector<Array>& a, const std::vector<Array>& b) {
  const auto all_close = [](const Array& x, const Array& y) {
    return largest_difference(x, y) <= 2 * rounding(x.dtype());
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), all_close);
}

// The results of one run of a case, and its deviations.
struct Run {
  std::vector<Array> values;  // results and gradients
  std::string ledger;
  Moved moved;
  std::vector<std::string> wrong;

  void expect(bool holds, const std::string& what) {
    if (!holds) wrong.push_back(what);
  }
};

class Case {
 public:
  Case(const Json& file, const Json& json) : file_(file), json_(json), id_(json.at("id").as_string()) {}

  void run(Report& report) {
    const Run shared = run_with(false), apart = run_with(true);
    std::vector<std::string> wrong = shared.wrong;
    for (const std::string& what : apart.wrong)
      if (std::find(wrong.begin(), wrong.end(), what) == wrong.end()) wrong.push_back("private replicas: " + what);
    if (wrong.empty() && !close(shared.values, apart.values))
      wrong.push_back("the same values with private replicas, got others");
    if (wrong.empty() && shared.ledger != apart.ledger)
      wrong.push_back(fmt::format("the ledger {}, got {} with private replicas", shared.ledger, apart.ledger));
    report.check(wrong.empty(), id_, fmt::format("{}", fmt::join(wrong, " | ")), shared.ledger + " moved");
  }

 private:
  Run run_with(bool private_replicas) {
    Run run;
    if (is_error()) return expect_error(private_replicas);
    try {
      mesh_ = mesh_of(file_.at("meshes").at(json_.at("mesh").as_string()), private_replicas);
      place_inputs();
      forward(run);
      backward(run);
    } catch (const std::exception& error) {
      run.wrong.push_back(fmt::format("a run to the end, got {}", error.what()));
    }
    return run;
  }

  // If no mode of JAX accepts a case, it must be an error here.
  bool is_error() const { return !json_.at("explicit").at("ok").as_bool() && !json_.at("auto").at("ok").as_bool(); }

  Run expect_error(bool private_replicas) {
    Run run;
    const std::string kind(json_.at("auto").at("error").at("kind").as_string());
    try {
      mesh_ = mesh_of(file_.at("meshes").at(json_.at("mesh").as_string()), private_replicas);
      place_inputs();
      call(inputs_);
      run.wrong.push_back(fmt::format("an error of kind {}, got a result", kind));
    } catch (const Error& error) {
      run.expect(kind != "uneven" || error.kind() == ErrorKind::not_divisible,
                 fmt::format("an error of kind {}, got {}", kind, error.what()));
    }
    return run;
  }

  void place_inputs() {
    inputs_.clear();
    for (const Json& input : json_.at("inputs").as_array()) inputs_.push_back(placed(input));
  }

  Array placed(const Json& input) const {
    const Array x =
        contents(input.at("init"), shape_of(input.at("shape")), dtype_of(input.at("dtype").as_string()).value());
    return device_put(x, NamedSharding(mesh_, spec_of(input.at("spec"))));
  }

  Results call(const std::vector<Array>& inputs) const {
    const auto found = propagation_operations().find(std::string(json_.at("op").as_string()));
    if (found == propagation_operations().end())
      fail(ErrorKind::invalid_file, "reference_runner",
           fmt::format("no function for the operation {}", std::string(json_.at("op").as_string())));
    return found->second(Call(inputs, json_.at("attrs"), mesh_));
  }

  void forward(Run& run) const {
    CommLedger ledger;
    const Results results = call(inputs_);
    check_records(run, ledger);
    run.moved.by_operation = ledger.bytes();
    run.moved.sums_alone = std::all_of(ledger.records().begin(), ledger.records().end(), is_sum);
    std::vector<Array> finished;
    for (const Array& y : results) finished.push_back(finish(y));
    run.ledger = ledger_text(ledger);
    run.moved.all = ledger.bytes();
    check_bytes(run);
    for (size_t i = 0; i < results.size(); ++i) {
      check_placement(run, results[i], i);
      check_value(run, finished[i], i);
    }
  }

  static bool is_sum(const CommRecord& r) { return r.kind == "all_reduce" || r.kind == "reduce_scatter"; }

  // Each record must have bytes, a reason, axes and the caller's line.
  static void check_records(Run& run, const CommLedger& ledger) {
    for (const CommRecord& r : ledger.records()) {
      run.expect(r.bytes > 0 && !r.reason.empty() && !r.mesh_axes.empty(), "a full account of " + r.operation);
      run.expect(std::string_view(r.where.file_name()).ends_with("runner/propagation_operations.cpp"),
                 fmt::format("the caller's line for {}, got {}:{}", r.operation, r.where.file_name(), r.where.line()));
    }
  }

  const Json* asked() const { return json_.at("attrs").as_object().if_contains("out_sharding"); }

  // Reduces a partial sum, unless the case requests one. The reduction counts as communication of the case.
  Array finish(const Array& y) const {
    if (!y.is_committed() || y.sharding().spec().unreduced_axes().empty() || (asked() && asked()->is_object()))
      return y;
    return redistribute(y, NamedSharding(mesh_, parts(y.sharding().spec())));
  }

  // Whether y has the same blocks under both specs. Mesh axes of size one are not part of a result's type here.
  bool same_parts(const Array& y, const PartitionSpec& a, const PartitionSpec& b) const {
    return NamedSharding(mesh_, parts(a)).is_equivalent_to(NamedSharding(mesh_, parts(b)), y.ndim());
  }
  bool same_sums(const PartitionSpec& a, const PartitionSpec& b) const {
    std::vector<std::string> axes = b.unreduced_axes();
    std::erase_if(axes, [&](const std::string& axis) { return mesh_.size(axis) == 1; });
    return a.unreduced_axes() == axes;
  }

  // Checks the sharding of result i. It may be the requested sharding or the sharding in JAX's type, because later
  // operations of a composition may change the requested one. Without a request, documented differences are allowed.
  void check_placement(Run& run, const Array& y, size_t i) const {
    const Json& typed = json_.at("explicit");
    const bool has_type = typed.at("ok").as_bool();
    if (!asked() && !has_type) return;
    const PartitionSpec spec = y.is_committed() ? y.sharding().spec() : PartitionSpec();
    const auto lies_in = [&](const Json& wanted) {
      const PartitionSpec there = spec_of(wanted);
      return same_parts(y, spec, there) && (!asked() || same_sums(spec, there));
    };
    const bool as_typed = has_type && lies_in(typed.at("out").at(i).at("spec"));
    const bool allowed = asked() ? lies_in(*asked()) : documented_placement(json_, parts(spec), i) != nullptr;
    run.expect(as_typed || allowed,
               fmt::format("{}, got {}", spec_of(asked() ? *asked() : typed.at("out").at(i).at("spec")).to_string(),
                           y.type_string()));
  }

  void check_value(Run& run, const Array& y, size_t i) const {
    const std::string d = difference(y, json_.at("value").at(i), file_.at("weights"), value_tolerance);
    if (!d.empty()) run.wrong.push_back(d);
    run.values.push_back(y);
  }

  void check_bytes(Run& run) const {
    const Json& automatic = json_.at("auto");
    if (!automatic.at("ok").as_bool()) return;
    int64_t most = bytes_of(automatic.at("collectives"));
    if (asked() && json_.at("explicit").at("ok").as_bool())
      most = std::max(most, bytes_of(json_.at("explicit").at("collectives")));
    run.expect(run.moved.all <= most || documented_difference(file_, json_, run.moved),
               fmt::format("at most {} bytes moved, got {}", most, run.moved.all));
  }

  void backward(Run& run) const {
    const Json* gradient = json_.as_object().if_contains("grad");
    if (!gradient || !gradient->at("ok").as_bool()) return;
    Tape tape(inputs_);
    Array loss;
    for (const Array& y : call(tape.shadows())) {
      const Array part = sum(y * weights(file_.at("weights"), y.shape(), y.dtype()));
      loss = loss.is_absent() ? part : loss + part;
    }
    const std::vector<Array> gradients = gradients_of(loss, tape);
    const auto& wrt = gradient->at("wrt").as_array();
    for (size_t k = 0; k < wrt.size(); ++k)
      check_gradient(run, gradients, wrt[k].to_number<size_t>(), gradient->at("out").at(k));
  }

  // A loss that depends on no input is an error here, and has zero gradients in JAX.
  std::vector<Array> gradients_of(const Array& loss, Tape& tape) const {
    try {
      return tape.gradients(loss);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::no_gradient) throw;
      std::vector<Array> zero;
      for (const Array& x : inputs_) zero.push_back(x * 0.0);
      return zero;
    }
  }

  void check_gradient(Run& run, const std::vector<Array>& gradients, size_t i, const Json& expected) const {
    const Array& g = gradients.at(i);
    run.expect(g.type_string() == inputs_[i].type_string(),
               fmt::format("a gradient {}, got {}", inputs_[i].type_string(), g.type_string()));
    if (const std::string d = difference(g, expected, file_.at("weights"), gradient_tolerance); !d.empty())
      run.wrong.push_back(fmt::format("gradient {}: {}", i, d));
    run.values.push_back(g);
  }

  const Json &file_, &json_;
  const std::string id_;
  Mesh mesh_;
  std::vector<Array> inputs_;
};

}  // namespace

void run_propagation(const std::filesystem::path& path, Report& report) {
  const Json file = parse_json_file(path);
  for (const Json& json : file.at("cases").as_array()) Case(file, json).run(report);
}

}  // namespace tessera::runner
