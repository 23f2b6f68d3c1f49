// Measures the overhead of an operation over the bare ATen calls: small arrays, a mesh of one device, a cached plan.
//
// The operations are the cases of single_calls.cpp and, for other operations, the validator's cases. Each is compared
// with the same computation in plain LibTorch. There is at most one case per operation, or all that match the words on
// the command line. add, scale and matmul are also measured with gradients recorded.
//
// Tessera and LibTorch alternate in short rounds, so that other programs rarely interrupt a round. The figure is the
// difference of the medians. Next to it are the difference of the minimum times, and the difference of the medians of
// LibTorch compared with itself, which is the measurement's error.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "sharding/autodiff/tape.h"
#include "sharding/operations.h"
#include "sharding/redistribution/device_put.h"
#include "tests/benchmarks/single_calls.h"
#include "tests/benchmarks/timing.h"

namespace {

using namespace tessera;
using benchmarks::Pair, benchmarks::time_in_turn;
using tessera::testing::Case;

constexpr int rounds = 1000, calls = 25;

// Calls that take longer get fewer calls per round, down to one.
template <class Bare, class Ours>
void compare(const char* what, const char* gradient, Bare bare, Ours ours) {
  const auto theirs = [&](int) { bare(); };
  const double one = benchmarks::time(calls, 1, theirs).median;
  const int in_a_round = std::clamp(static_cast<int>(calls / one), 1, calls), n = rounds * calls / in_a_round;
  const Pair t = time_in_turn(n, in_a_round, theirs, [&](int) { ours(); });
  const Pair itself = time_in_turn(n, in_a_round, theirs, theirs);
  std::printf("%-28s %-12s %8.3f %8.3f %+9.3f %+9.3f %+9.3f\n", what, gradient, t.first.median, t.second.median,
              t.more_by_median(), t.more(), itself.more_by_median());
}

void compare_all(const char* gradient, const at::Tensor& x, const at::Tensor& y, const Array& a, const Array& b) {
  compare(
      "add", gradient, [&] { return at::add(x, y); }, [&] { return a + b; });
  compare(
      "scale", gradient, [&] { return at::mul(x, 2.0); }, [&] { return a * 2.0; });
  compare(
      "matmul", gradient, [&] { return at::matmul(x, y); }, [&] { return matmul(a, b); });
}

// Measures the same local work on eight virtual devices: the cost of one of them compared with a mesh of one.
void compare_devices(const at::Tensor& x, const at::Tensor& y) {
  const Mesh one = make_mesh({{"data", 1}}), eight = make_mesh({{"data", 8}});
  const at::Tensor rows = at::cat(std::vector<at::Tensor>(8, x));
  const Array a = device_put(from_tensor(x), {one, P{}}), b = device_put(from_tensor(y), {one, P{}});
  const Array as = device_put(from_tensor(rows), {eight, P{"data"}}), w = device_put(from_tensor(y), {eight, P{}});
  const auto row = [](const char* what, auto alone, auto together) {
    const Pair t = time_in_turn(
        rounds, calls, [&](int) { alone(); }, [&](int) { together(); });
    std::printf("%-28s %-12s %8.3f %8.3f\n", what, "", t.first.least, t.second.least / 8);
  };
  std::printf("%-28s %-12s %8s %8s\n", "a device's share", "", "of one", "of eight");
  row(
      "add", [&] { return a + a; }, [&] { return as + as; });
  row(
      "scale", [&] { return a * 2.0; }, [&] { return as * 2.0; });
  row(
      "matmul", [&] { return matmul(a, b); }, [&] { return matmul(as, w); });
}

void compare_case(const Case& c, const NamedSharding& whole) {
  std::vector<at::Tensor> tensors;
  std::vector<Array> arrays;
  for (const at::Tensor& t : c.function.inputs) {
    tensors.push_back(t.is_floating_point() ? t.to(at::kFloat) : t);
    arrays.push_back(device_put(from_tensor(tensors.back()), whole));
  }
  compare(
      c.function.name.c_str(), "", [&] { return c.function.theirs(tensors); }, [&] { return c.function.ours(arrays); });
}

std::vector<Case> all_cases() {
  using namespace tessera::testing;
  std::vector<Case> all = benchmarks::single_calls();
  for (auto* cases : {elementwise_cases, linear_algebra_cases, reduction_cases, ordering_cases, shape_cases,
                      indexing_cases, neural_cases})
    for (Case& c : cases()) all.push_back(std::move(c));
  return all;
}

bool is_wanted(const Case& c, int argc, char** argv, std::set<std::string>& seen) {
  if (!c.function.theirs) return false;
  bool fresh = false;
  for (const std::string& operation : c.operations) fresh |= seen.insert(operation).second;
  if (argc < 2) return fresh;
  return std::any_of(argv + 1, argv + argc,
                     [&](const char* word) { return c.function.name.find(word) != std::string::npos; });
}

}  // namespace

int main(int argc, char** argv) {
  const NamedSharding whole(make_mesh({{"data", 1}}), P{});
  const at::Tensor x = at::randn({8, 8}), y = at::randn({8, 8});
  const Array a = device_put(from_tensor(x), whole), b = device_put(from_tensor(y), whole);
  std::printf("%-28s %-12s %8s %8s %9s %9s %9s\n", "operation", "", "ATen us", "here us", "above", "by least",
              "itself");
  if (argc < 2) {
    compare_all("grad mode on", x, y, a, b);
    Tape tape({a});
    compare_all("with grad", x.detach().requires_grad_(true), y, tape.shadows()[0], b);
  }
  at::AutoGradMode off(false);
  if (argc < 2) {
    compare_all("", x, y, a, b);
    compare_devices(x, y);
  }
  std::set<std::string> seen;
  for (const Case& c : all_cases())
    if (is_wanted(c, argc, argv, seen)) compare_case(c, whole);
  return 0;
}
