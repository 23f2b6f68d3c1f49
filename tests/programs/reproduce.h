// Functions that printed programs call. Replace tests/programs/reproduce.cpp with such a program; build `reproduce`.
#pragma once

#include <cmath>
#include <cstdio>

#include "tests/programs/evaluate.h"
#include "tests/programs/interpreter.h"

namespace tessera::programs {

using List = std::vector<Array>;

template <class T>
at::Tensor value(const std::vector<T>& values, const Shape& shape) {
  std::vector<double> wide(values.begin(), values.end());
  constexpr at::ScalarType type = std::is_same_v<T, double> ? at::kDouble
                                  : std::is_same_v<T, bool> ? at::kBool
                                                            : at::kInt;
  return at::tensor(wide, at::kDouble).reshape(shape).to(type);
}

inline Array call(int which, const char*, const List& x) { return as_double(called(cases()[which], x)); }
inline Array inner_gradient(const std::function<Array(const List&)>& f, const List& x, bool differentiable) {
  const auto half_square = [&](const std::vector<Array>& z) {
    List all = x;
    all[0] = z[0];
    const Array y = f(all);
    return sum(y * y) * 0.5;
  };
  return gradients_of(std::function<Array(const std::vector<Array>&)>(half_square), {x[0]}, differentiable)[0];
}
inline Array inner_jvp(const std::function<Array(const List&)>& f, const List& x) {
  const auto at = [&](const List& z) {
    List all = x;
    all[0] = z[0];
    return List{f(all)};
  };
  return jvp_of(at, {x[0]}, {x[0] * 0.5 + 0.25})[0];
}
inline Array ppermute_ring(const Array& x, const SpecEntry& axes) {
  Node node{.kind = Kind::collective, .which = static_cast<int>(Collective::ppermute), .axes = axes};
  return collective(node, x);
}

struct Layer {
  std::vector<nn::Param> w;
};
struct Model {
  std::vector<Layer> layers;
};

// Prints the loss and the gradients of f's results, each weighted by random numbers, on the mesh.
inline void show(Mesh mesh, const std::vector<Leaf>& leaves, const std::function<List(const List&)>& f,
                 const std::vector<uint64_t>& weights, const GradientOptions& options) {
  Model model;
  List others;
  const auto placed = [&](const Leaf& leaf) {
    const Array x = from_tensor(leaf.value);
    return leaf.spec ? device_put(x, NamedSharding(mesh, *leaf.spec)) : x;
  };
  for (const Leaf& leaf : leaves) {
    if (leaf.role != Leaf::parameter) {
      others.push_back(placed(leaf));
      continue;
    }
    if (model.layers.size() <= static_cast<size_t>(leaf.layer)) model.layers.resize(leaf.layer + 1);
    model.layers[leaf.layer].w.push_back({placed(leaf), {}});
  }
  const auto loss = [&](const Model& m, const Array&) {
    List x;
    std::vector<size_t> next(m.layers.size());
    size_t other = 0;
    for (const Leaf& leaf : leaves)
      x.push_back(leaf.role == Leaf::parameter ? m.layers[leaf.layer].w[next[leaf.layer]++].value : others[other++]);
    const List results = f(x);
    Array total = full({}, 0, float64);
    for (size_t i = 0; i < results.size(); ++i)
      total = total + sum(results[i] * from_tensor(testing::random_tensor(results[i].shape(), weights[i])));
    return total;
  };
  const auto [value, gradient] = nn::value_and_grad(loss, options)(std::as_const(model), Array());
  std::printf("loss %.12g\n", value.item<double>());
  for (const Layer& layer : gradient.layers)
    for (const nn::Param& w : layer.w) {
      std::printf("%s", w.value.type_string().c_str());
      for (const double g : reduce_partial_sum(w.value).to_host<double>()) std::printf(" %.12g", g);
      std::printf("\n");
    }
}

}  // namespace tessera::programs

using namespace tessera;
using namespace tessera::programs;
