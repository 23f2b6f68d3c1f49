// Checks a layer under every sharding of its parameters and its input: value, gradient and statistics do not change.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "nn/placement/filter_shard.h"
#include "nn/transformations/value_and_grad.h"
#include "sharding/operations.h"
#include "sharding/random/random.h"
#include "tests/sharding/meshes.h"
#include "tests/sharding/placements_said.h"

namespace tessera::nn::testing {

// A layer and its input, which gets a gradient, too.
template <class Layer>
struct Applied {
  Layer layer;
  Param x;
};

inline double difference(const Array& a, const Array& b) {
  if (a.is_absent() != b.is_absent() || (!a.is_absent() && a.shape() != b.shape())) return INFINITY;
  if (a.is_absent()) return 0;
  const std::vector<double> x = a.to_host<double>(), y = b.to_host<double>();
  double largest = 0, worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    largest = std::max(largest, std::abs(y[i]));
    worst = std::isfinite(x[i]) ? std::max(worst, std::abs(x[i] - y[i])) : INFINITY;
  }
  return worst / (1 + largest);
}

// Returns every table of rules that maps each of these names to one of the given mesh axes. All other names are
// replicated.
inline std::vector<Rules> tables_over(const std::vector<std::string>& names, const Leaves& tree,
                                      const std::vector<Rule>& ways) {
  std::vector<Rules> tables{{}};
  std::set<std::string> others;
  for (const Leaf& leaf : tree)
    for (const AxisName& name : *leaf.axes)
      if (!name.is_none()) others.insert(name.name());
  for (const std::string& name : names) {
    EXPECT_TRUE(others.contains(name)) << name << " names no dim";
    std::vector<Rules> longer;
    for (const Rules& table : tables)
      for (Rule rule : ways) {
        rule.logical = name;
        longer.push_back(table);
        longer.back().push_back(rule);
      }
    tables = std::move(longer);
  }
  for (Rules& table : tables)
    for (const std::string& name : others) table.push_back({name, replicated});
  return tables;
}

template <class Layer>
struct Outcome {
  Array value;
  Layer after;
  Applied<Layer> gradient;
};

template <class Layer, class Call>
Outcome<Layer> compute(const Applied<Layer>& applied, Call call) {
  const auto loss = [&](Applied<Layer> m) {
    const Array y = call(m.layer, m.x);
    const Array weights = cos(astype(reshape(arange(y.size()), y.shape()), float64));
    return std::pair(sum(y * weights), std::pair(y, m.layer));
  };
  auto [value, gradient] = value_and_grad(loss)(applied);
  return {value.second.first, value.second.second, gradient};
}

template <class Layer>
std::string differences(const Outcome<Layer>& got, const Outcome<Layer>& expected, double tolerance) {
  std::string wrong;
  const auto compare = [&](const std::string& what, const Array& a, const Array& b) {
    if (const double e = difference(a, b); !(e < tolerance)) wrong += fmt::format("{} off by {}\n", what, e);
  };
  compare("value", got.value, expected.value);
  const Leaves a = leaves(got.gradient), b = leaves(expected.gradient);
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].kind != Kind::buffer) compare("gradient of " + a[i].path, *a[i].value, *b[i].value);
  const Leaves c = leaves(got.after), d = leaves(expected.after);
  for (size_t i = 0; i < c.size(); ++i)
    if (c[i].kind == Kind::buffer) compare(c[i].path + " afterwards", *c[i].value, *d[i].value);
  return wrong;
}

// The mesh of a law, used with shared and with private replicas, and the mesh axes that a name may be mapped to.
struct Places {
  std::vector<MeshAxis> mesh{{"a", 2}, {"b", 2}};
  std::vector<Rule> ways{{"", replicated}, {"", "a"}, {"", "b"}, {"", {"b", "a"}}};
  double tolerance = 1e-11;
};

// Returns the layer with noise added to its arrays, so that no bias is zero and no scale one, and an x of this shape.
template <class Layer>
Applied<Layer> shaken(Layer layer, const Shape& shape, const Axes& axes) {
  Applied<Layer> start{std::move(layer), {normal(Key(1), shape, float64), axes}};
  uint32_t n = 0;
  for (const Leaf& leaf : leaves(start.layer))
    *leaf.value =
        astype(*leaf.value, float64) + 0.1 * uniform(fold_in(Key(2), n++), leaf.value->shape(), 0, 1, float64);
  return start;
}

// Maps `names` to mesh axes in every way; each time the outcome must be the expected one.
template <class Layer, class Call>
void expect_everywhere(const Applied<Layer>& start, const Outcome<Layer>& expected,
                       const std::vector<std::string>& names, Call call, const Places& places = {}) {
  int failures = 0;
  for (const Mesh mesh : tessera::testing::shared_and_private(places.mesh)) {
    const std::vector<Rules> tables = tables_over(names, leaves(start), places.ways);
    const size_t said = tessera::testing::placements_said(), step = said ? (tables.size() + said - 1) / said : 1;
    for (size_t i = 0; i < tables.size(); i += step) {
      if (failures > 2) return;
      const Rules& rules = tables[i];
      const Outcome<Layer> got = compute(filter_shard(start, MeshRules(mesh, rules)), call);
      const std::string wrong = differences(got, expected, places.tolerance);
      if (wrong.empty()) continue;
      ++failures;
      ADD_FAILURE() << rules.to_string() << (mesh.private_replicas() ? ", private replicas\n" : "\n") << wrong;
    }
  }
}

template <class Layer, class Call>
void expect_itself(Layer layer, const Shape& shape, const Axes& axes, const std::vector<std::string>& names,
                   Call call) {
  const Applied<Layer> start = shaken(std::move(layer), shape, axes);
  expect_everywhere(start, compute(start, call), names, call);
}

const inline auto plainly = [](auto& layer, const Array& x) { return layer(x); };

}  // namespace tessera::nn::testing
