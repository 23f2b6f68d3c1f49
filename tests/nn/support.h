// Helpers for the tests of nn: expected errors, comparison of values, and strategies that must not change results.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "nn/tree/tree.h"
#include "sharding/placement/mesh_rules.h"
#include "tests/sharding/expect_error.h"

namespace tessera::nn::testing {

using tessera::testing::error_of;

// Expects an Error with exactly this message.
template <class F>
void expect_error(ErrorKind kind, const std::string& message, F call) {
  EXPECT_EQ(error_of(kind, call), message);
}

template <class F>
void expect_error_with(ErrorKind kind, std::initializer_list<std::string> words, F call) {
  tessera::testing::expect_error(kind, words, call);
}

struct WrongCall {
  ErrorKind kind;
  std::string message;
  std::function<void()> call;
};

inline void expect_errors(const std::vector<WrongCall>& table) {
  for (const WrongCall& row : table) expect_error(row.kind, row.message, row.call);
}

inline std::vector<std::string> paths_of(const Leaves& leaves) {
  std::vector<std::string> paths;
  for (const Leaf& leaf : leaves) paths.push_back(leaf.path);
  return paths;
}

inline void expect_near(const Array& got, const Array& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(got.shape(), expected.shape()) << what;
  const std::vector<float> a = got.to_host<float>(), b = expected.to_host<float>();
  double largest = 0, worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max<double>(largest, std::abs(b[i]));
    worst = std::isfinite(a[i]) ? std::max<double>(worst, std::abs(a[i] - b[i])) : INFINITY;
  }
  EXPECT_LE(worst, tolerance * (1 + largest)) << what << ": largest expected value " << largest;
}

// Compares two trees of one type array by array.
template <class Tree>
void expect_trees_near(const Tree& got, const Tree& expected, double tolerance, const std::string& what) {
  const Leaves a = leaves(got), b = leaves(expected);
  ASSERT_EQ(paths_of(a), paths_of(b)) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].value->is_absent(), b[i].value->is_absent()) << what << ' ' << a[i].path;
    if (!a[i].value->is_absent()) expect_near(*a[i].value, *b[i].value, tolerance, what + ' ' + a[i].path);
  }
}

struct Strategy {
  std::string name;
  MeshRules mesh_rules;
};

// A mesh of one device; data, tensor and fully sharded data parallelism; 2-D meshes; and a mesh with an unused axis.
// Each with shared and with private replicas.
inline std::vector<Strategy> strategies() {
  const auto rules = [](Rule batch, Rule embed, Rule hidden) {
    const auto& h = hidden.mesh_axes;
    return Rules{batch, embed, hidden, {"heads", h}, {"vocab", h}, {"norm", replicated}, {"seq", replicated}};
  };
  const Rules dp = rules({"batch", "data"}, {"embed", replicated}, {"hidden", replicated});
  const Rules tp = rules({"batch", replicated}, {"embed", replicated}, {"hidden", "model"});
  const Rules fsdp = rules({"batch", "data"}, {"embed", "data"}, {"hidden", replicated});
  const Rules both = rules({"batch", "data"}, {"embed", replicated}, {"hidden", "model"});
  const Rules fsdp_tp = rules({"batch", "data"}, {"embed", "data"}, {"hidden", "model"});
  std::vector<Strategy> all;
  for (const bool private_replicas : {false, true}) {
    const MeshOptions options{.private_replicas = private_replicas};
    const std::string how = private_replicas ? ", private replicas" : "";
    const auto add = [&](const std::string& name, std::vector<MeshAxis> axes, const Rules& rules) {
      all.push_back({name + how, MeshRules(make_mesh(std::move(axes), options), rules)});
    };
    add("one", {{"data", 1}, {"model", 1}}, both);
    add("dp", {{"data", 4}}, dp);
    add("tp", {{"model", 2}}, tp);
    add("fsdp", {{"data", 4}}, fsdp);
    add("2d", {{"data", 2}, {"model", 2}}, both);
    add("fsdp and tp", {{"data", 2}, {"model", 2}}, fsdp_tp);
    add("an idle axis", {{"data", 2}, {"idle", 3}, {"model", 2}}, both);
  }
  return all;
}

}  // namespace tessera::nn::testing
