// Reference files of kind "optimizers": ten updates by a chain of transforms, and the arrays of its state.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "sharding/files/json.h"
#include "sharding/files/safetensors.h"
#include "sharding/operations.h"
#include "sharding/placement/mesh.h"
#include "sharding/redistribution/device_put.h"
#include "tests/runner/optimizer_arguments.h"
#include "tests/runner/report.h"

namespace tessera::runner {

namespace {

struct KnownNumbers {
  SafetensorsFile file;
  std::vector<std::string> names;

  Array array(const std::string& name) const {
    return file.array(name);
  }
  Tree params() const {
    Tree tree;
    for (const std::string& name : names) tree[name] = array(fmt::format("params/{}", name));
    return tree;
  }
  Tree at(const std::string& prefix, int64_t step) const {
    Tree tree;
    for (const std::string& name : names) tree[name] = array(fmt::format("{}/{}", prefix, name)).index({step}) * 1.0;
    return tree;
  }
};

// Shards the last dimension over "model" and the others over "data", if they divide evenly.
Tree placed(Tree tree, const Mesh* mesh) {
  if (!mesh) return tree;
  for (auto& [name, x] : tree) {
    std::vector<SpecEntry> entries;
    for (int d = 0; d < x.ndim(); ++d) {
      const bool model = d + 1 == x.ndim();
      entries.push_back(x.shape(d) % 2 ? SpecEntry() : SpecEntry(model ? "model" : "data"));
    }
    x = device_put(x, NamedSharding(*mesh, PartitionSpec(entries)));
  }
  return tree;
}

// Compares two numbers; NaN equals NaN.
bool is_same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

double distance(const Array& got, const Array& expected) {
  const std::vector<float> a = got.to_host<float>(), b = expected.to_host<float>();
  double most = a.size() == b.size() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double d = is_same(a[i], b[i]) ? 0 : std::abs(static_cast<double>(a[i]) - b[i]);
    most = std::isnan(d) ? INFINITY : std::max(most, d);
  }
  return most;
}

// Returns the arrays of a state that belong to parameters, as "dense.kernel [6,4] float32", sorted; without
// placeholders of shape [1].
std::vector<std::string> expected_state(const Json& leaves, const std::vector<std::string>& names) {
  std::vector<std::string> result;
  for (const Json& leaf : leaves.as_array()) {
    const std::string path(leaf.at(0).as_string()), shape = boost::json::serialize(leaf.at(1));
    for (const std::string& name : names)
      if (path.ends_with(fmt::format("['{}']", name)) && shape != "[1]")
        result.push_back(fmt::format("{} {} {}", name, shape, std::string(leaf.at(2).as_string())));
  }
  std::sort(result.begin(), result.end());
  return result;
}

// Returns whether this array of a state belongs to the parameter: 0.mu.dense.kernel belongs to dense.kernel.
bool is_of(const std::string& path, const std::string& name) {
  return path == name || path.ends_with(fmt::format(".{}", name));
}

std::string shape_text(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ",")); }

std::vector<std::string> actual_state(AnyTransform::State& state, const std::vector<std::string>& names) {
  std::vector<std::string> result;
  for (const nn::Leaf& leaf : state.leaves(state.value)) {
    if (leaf.value->is_absent()) continue;
    for (const std::string& name : names)
      if (is_of(leaf.path, name))
        result.push_back(fmt::format("{} {} {}", name, shape_text(leaf.value->shape()), name_of(leaf.value->dtype())));
  }
  std::sort(result.begin(), result.end());
  return result;
}

bool mentions(const Json& chain, const char* word) {
  return boost::json::serialize(chain).find(word) != std::string::npos;
}

// Tolerances of the reference files. Newton-Schulz iterations are less exact in float32.
double tolerance_of(const Json& c) { return mentions(c.at("chain"), "muon") ? 1e-5 : 2e-6; }

void run_case(const std::string& name, const Json& c, const KnownNumbers& numbers, const Mesh* mesh, Report& report) {
  const std::string where = name + (mesh ? " (sharded)" : "");
  const double tolerance = tolerance_of(c);
  try {
    const AnyTransform transform = transform_of(c.at("chain"));
    Tree params = placed(numbers.params(), mesh);
    AnyTransform::State state = transform.init(params);
    const auto expected = expected_state(c.at("state_leaves"), numbers.names), got = actual_state(state, numbers.names);
    report.check(got == expected, where + ", state", fmt::format("{}", fmt::join(expected, "; ")),
                 fmt::format("{}", fmt::join(got, "; ")));
    for (int64_t step = 0; step < c.at("steps").to_number<int64_t>(); ++step) {
      auto [updates, next] = transform.update(placed(numbers.at("grads", step), mesh), std::move(state), params);
      params = optim::apply_updates(params, updates);
      state = std::move(next);
      for (const auto& [key, expected_value] : numbers.at(name, step))
        report.near(distance(params.at(key), expected_value), 0, tolerance,
                    fmt::format("{}: {} after update {}", where, key, step + 1));
    }
  } catch (const std::exception& error) {
    report.check(false, where, "a run to the end", error.what());
  }
}

}  // namespace

void run_optimizers(const std::filesystem::path& file, Report& report) {
  const Json all = parse_json_file(file);
  KnownNumbers numbers{SafetensorsFile::open(std::filesystem::path(file).replace_extension(".safetensors")), {}};
  for (const auto& entry : all.at("params").as_object()) numbers.names.emplace_back(entry.key());
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 2}});
  for (const auto& [name, c] : all.at("cases").as_object())
    for (const Mesh* placed_on : {static_cast<const Mesh*>(nullptr), &mesh})
      run_case(std::string(name), c, numbers, placed_on, report);
}

}  // namespace tessera::runner
