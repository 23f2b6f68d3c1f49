// Helpers for the tests of optim: a small model, meshes with shared and private replicas, and comparison of arrays.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "nn/placement/filter_shard.h"
#include "nn/tree/tree.h"
#include "optim/optimizer.h"
#include "sharding/accounting/ledger.h"
#include "sharding/base/error.h"
#include "sharding/operations.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"
#include "tests/sharding/expect_error.h"

namespace tessera {

struct Toy {
  nn::Param kernel, bias, table;

  static Toy init(uint32_t seed) {
    const auto [k1, k2, k3] = split<3>(Key(seed));
    return {.kernel = {normal(k1, {8, 16}), {"in", "out"}},
            .bias = {normal(k2, {16}), {"out"}},
            .table = {normal(k3, {24, 8}), {"vocab", "in"}}};
  }
};

inline std::vector<float> host(const Array& x) { return astype(x, float32).to_host<float>(); }

inline void expect_near(const Array& got, const std::vector<float>& expected, double tolerance,
                        const std::string& what = "") {
  const std::vector<float> values = host(got);
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], tolerance) << what << " at " << i;
}

template <class Tree>
void expect_tree_near(const Tree& got, const Tree& expected, double tolerance) {
  const nn::Leaves a = nn::leaves(got), b = nn::leaves(expected);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].path, b[i].path);
    EXPECT_EQ(a[i].value->is_absent(), b[i].value->is_absent()) << a[i].path;
    if (!a[i].value->is_absent()) expect_near(*a[i].value, host(*b[i].value), tolerance, a[i].path);
  }
}

inline std::string by_dims(const std::string&, const Array& p) { return p.ndim() == 2 ? "matrix" : "vector"; }

// A loss of rows x of length 8 that depends on every parameter.
inline Array toy_loss(const Toy& m, const Array& x) {
  return mean(square(matmul(x, m.kernel) + m.bias)) + mean(square(matmul(x, transpose(m.table))));
}

struct Case {
  std::string name;
  std::vector<MeshAxis> axes;
  Rules rules;
  std::string norm_axes;  // the axes that shard an array
};

inline std::vector<Case> cases() {
  return {
      {"one", {{"data", 1}}, {{"in", replicated}, {"out", replicated}, {"vocab", replicated}}, ""},
      {"replicated", {{"data", 4}}, {{"in", replicated}, {"out", replicated}, {"vocab", replicated}}, ""},
      {"fsdp", {{"data", 8}}, {{"in", "data"}, {"out", replicated}, {"vocab", replicated}}, "data"},
      {"tp", {{"data", 2}, {"model", 4}}, {{"in", replicated}, {"out", "model"}, {"vocab", "model"}}, "model"},
      {"both", {{"data", 2}, {"model", 4}}, {{"in", "data"}, {"out", "model"}, {"vocab", "model"}}, "data,model"},
      {"tuple",
       {{"data", 2}, {"model", 2}},
       {{"in", {"model", "data"}}, {"out", replicated}, {"vocab", replicated}},
       "data,model"},
  };
}

inline MeshRules mesh_rules_of(const Case& c, bool private_replicas) {
  return {make_mesh(c.axes, {.private_replicas = private_replicas}), c.rules};
}

// Runs f(case, mesh_rules) on all meshes, with shared and with private replicas.
template <class F>
void on_all_meshes(F f) {
  for (const Case& c : cases())
    for (const bool private_replicas : {false, true}) {
      SCOPED_TRACE(c.name + (private_replicas ? ", private" : ", shared"));
      f(c, mesh_rules_of(c, private_replicas));
    }
}

namespace optim {

using testing::error_of;

// Gradients with the shardings of `model`.
inline Toy gradients_for(const Toy& model, uint32_t seed) {
  Toy grads = Toy::init(seed);
  const nn::Leaves g = nn::leaves(grads), p = nn::leaves(model);
  for (size_t i = 0; i < g.size(); ++i)
    *g[i].value = p[i].value->is_committed() ? device_put(*g[i].value, p[i].value->sharding()) : *g[i].value * 1.0;
  return grads;
}

// Compares the optimizer with the pure transform, step by step.
template <class Tx>
void expect_equal_to_pure(const Tx& tx, Toy model) {
  Toy pure = model;
  Optimizer optimizer(model, tx);
  auto state = tx.init(pure);
  for (uint32_t step = 0; step < 5; ++step) {
    const Toy grads = gradients_for(model, 10 + step);
    auto [updates, next] = tx.update(grads, state, pure);
    pure = apply_updates(pure, updates);
    state = next;
    optimizer.update(model, grads);
  }
  expect_tree_near(model, pure, 1e-6);
  expect_tree_near(optimizer.state(), state, 1e-6);
  EXPECT_EQ(optimizer.count(), 5);
}

}  // namespace optim
}  // namespace tessera
