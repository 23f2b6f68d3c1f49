// Compares an optimizer's update with the bare kernel: 1,000 parameters, alternating in one run.
//
// Compares Optimizer::update of adamw with at::_fused_adamw_, and of sgd with at::_foreach_add_, on the same
// tensors: one device, eight virtual devices with replicated parameters, and eight with parameters sharded in eight.
// The bare calls get lists that were made before. For clip_by_global_norm, compares the time of an update per
// parameter, for 250 to 4,000 parameters, with the time of the bare norm.
//   build/release/tests/benchmarks/optimizers [rounds]
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "optim/optimizer.h"
#include "sharding/array/array_impl.h"
#include "sharding/operations.h"
#include "sharding/placement/mesh.h"
#include "sharding/redistribution/device_put.h"
#include "tests/benchmarks/timing.h"

namespace {

using namespace tessera;
using benchmarks::median, benchmarks::seconds_of;

using Model = std::vector<Array>;
using Lists = std::vector<std::vector<at::Tensor>>;

int rounds = 15;

template <class Bare, class Ours>
void compare(const std::string& what, Bare bare, Ours ours) {
  std::vector<double> a, b, ratio;
  for (int r = -2; r < rounds; ++r) {
    const double x = 1e3 * seconds_of(bare), y = 1e3 * seconds_of(ours);
    if (r < 0) continue;
    a.push_back(x), b.push_back(y), ratio.push_back(y / x);
  }
  std::printf("%-44s %9.3f %9.3f %8.3f\n", what.c_str(), median(a), median(b), median(ratio));
  std::fflush(stdout);
}

Model model_of(int parameters, int64_t width, const NamedSharding* place) {
  Model model;
  for (int i = 0; i < parameters; ++i) {
    const Array x = from_tensor(at::rand({width, width}));
    model.push_back(place ? device_put(x, *place) : x);
  }
  return model;
}

// Returns `copies` lists of tensors like the model's own.
Lists lists_of(const Model& model, int copies) {
  Lists lists(copies);
  for (auto& list : lists)
    for (const Array& x : model)
      for (const at::Tensor& t : x.impl()->local) list.push_back(at::rand_like(t));
  return lists;
}

void compare_kernels(const std::string& where, int64_t width, const NamedSharding* place) {
  at::AutoGradMode off(false);
  Model model = model_of(1000, width, place);
  const Model grads = model_of(1000, width, place);
  {
    Lists l = lists_of(model, 4);
    const std::vector<at::Tensor> counts(l[0].size(), at::scalar_tensor(1.0f));
    optim::Optimizer optimizer(model, optim::adamw({.learning_rate = 1e-3, .mask = optim::matrices_only}));
    compare(
        "adamw, " + where,
        [&] { at::_fused_adamw_(l[0], l[1], l[2], l[3], {}, counts, 1e-3, 0.9, 0.999, 1e-4, 1e-8, false, false); },
        [&] { optimizer.update(model, grads); });
  }
  Lists l = lists_of(model, 2);
  optim::Optimizer optimizer(model, optim::sgd({.learning_rate = 1e-3}));
  compare(
      "sgd, " + where, [&] { at::_foreach_add_(l[0], l[1], -1e-3); }, [&] { optimizer.update(model, grads); });
}

// Compares with the bare norm of gradients of the same sizes: both take longer once these exceed the caches.
void clip_is_linear() {
  std::printf("\n%-44s %9s %12s %14s\n", "clip_by_global_norm + sgd", "ms", "us/parameter", "bare norm's us");
  for (const int n : {250, 500, 1000, 2000, 4000}) {
    Model model = model_of(n, 32, nullptr);
    const Model grads = model_of(n, 32, nullptr);
    const Lists bare = lists_of(grads, 1);
    optim::Optimizer optimizer(model, optim::chain(optim::clip_by_global_norm(1), optim::sgd({.learning_rate = 1e-3})));
    auto update = [&] { optimizer.update(model, grads); };
    auto norm = [&] { at::stack(at::_foreach_norm(bare[0], 2)).norm(); };
    std::vector<double> times, norms;
    for (int r = 0; r < rounds; ++r) times.push_back(1e3 * seconds_of(update)), norms.push_back(1e3 * seconds_of(norm));
    std::printf("%-44d %9.3f %12.3f %14.3f\n", n, median(times), median(times) * 1000 / n, median(norms) * 1000 / n);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) rounds = std::atoi(argv[1]);
  std::printf("%-44s %9s %9s %8s\n", "1,000 parameters", "bare ms", "ours ms", "ratio");
  const Mesh eight = make_mesh({{"data", 8}});
  const NamedSharding replicated(eight, P{}), cut(eight, P{"data"});
  for (const int64_t width : {64, 128}) {
    const std::string shape = std::to_string(width) + " x " + std::to_string(width);
    compare_kernels("one device, " + shape, width, nullptr);
    compare_kernels("8 devices, replicated, " + shape, width, &replicated);
    compare_kernels("8 devices, cut in eight, " + shape, width, &cut);
  }
  clip_is_linear();
}
