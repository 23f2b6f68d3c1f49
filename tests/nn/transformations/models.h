// Helpers for the tests of transformations: a small model, its loss and a batch, and the comparison of gradients.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "nn/layers/mlp.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/value_and_grad.h"
#include "sharding/array/array_impl.h"
#include "sharding/operations.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"
#include "tests/nn/support.h"

namespace tessera::nn::testing {

struct Batch {
  NamedArray x{"batch", none}, y{"batch", none};
};

inline Batch make_batch() {
  Batch batch;
  batch.x = normal(Key(1), {8, 4});
  batch.y = normal(Key(2), {8, 4});
  return batch;
}

inline Mlp make_mlp() { return Mlp::init(Key(0), {"embed", 4}, {"hidden", 8}); }

inline Array mse(const Mlp& model, const Batch& batch) { return mean(square(model(batch.x) - batch.y)); }

inline bool is_recorded(const Array& x) {
  const auto& local = x.impl()->local;
  return std::any_of(local.begin(), local.end(), [](const at::Tensor& t) { return t.requires_grad(); });
}

// The largest difference between two trees, array by array.
template <class Tree>
double difference(const Tree& a, const Tree& b) {
  double most = 0;
  const Leaves left = leaves(a), right = leaves(b);
  EXPECT_EQ(paths_of(left), paths_of(right));
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].value->is_absent(), right[i].value->is_absent()) << left[i].path;
    if (left[i].value->is_absent()) continue;
    const double d = (to_tensor(*left[i].value) - to_tensor(*right[i].value)).abs().max().item<double>();
    most = std::isnan(d) ? INFINITY : std::max(most, d);
  }
  return most;
}

template <class Tree>
std::vector<std::string> types_of(const Tree& tree) {
  std::vector<std::string> types;
  for (const Leaf& leaf : leaves(tree)) types.push_back(leaf.value->is_absent() ? "" : leaf.value->type_string());
  return types;
}

}  // namespace tessera::nn::testing
