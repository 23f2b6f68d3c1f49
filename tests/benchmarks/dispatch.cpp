// What an operation costs above the bare ATen call: 8x8 arrays, a mesh of one, the plan already known.
//
// Both sides run in turn, in many short rounds; the figure is the difference of the medians, the spread that of the
// middle half of the rounds.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "sharding/device_put.h"
#include "sharding/operations.h"
#include "sharding/tape.h"

namespace {

using namespace tessera;

constexpr int rounds = 400, calls = 500;

template <class F>
double microseconds(F& f) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) f();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / calls;
}

struct Sample {
  double low, median, high;
};

Sample summary(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return {values[n / 4], values[n / 2], values[n * 3 / 4]};
}

template <class Bare, class Ours>
void compare(const char* what, const char* gradient, Bare bare, Ours ours) {
  std::vector<double> a, b, difference;
  microseconds(bare), microseconds(ours);
  for (int r = 0; r < rounds; ++r) {
    a.push_back(microseconds(bare)), b.push_back(microseconds(ours));
    difference.push_back(b.back() - a.back());
  }
  const Sample above = summary(difference);
  std::printf("%-12s %-12s %8.3f %8.3f %+9.3f   [%+.3f, %+.3f]\n", what, gradient, summary(a).median, summary(b).median,
              above.median, above.low, above.high);
}

// Functions of the same name on both sides.
#define COMPARE_UNARY(name) \
  compare(                  \
      #name, gradient, [&] { return at::name(x); }, [&] { return name(a); })
#define COMPARE_BINARY(name) \
  compare(                   \
      #name, gradient, [&] { return at::name(x, y); }, [&] { return name(a, b); })

void compare_all(const char* gradient, const at::Tensor& x, const at::Tensor& y, const Array& a, const Array& b) {
  compare(
      "add", gradient, [&] { return at::add(x, y); }, [&] { return a + b; });
  compare(
      "add number", gradient, [&] { return at::add(x, 2.0); }, [&] { return a + 2.0; });
  compare(
      "scale", gradient, [&] { return at::mul(x, 2.0); }, [&] { return a * 2.0; });
  compare(
      "less", gradient, [&] { return at::lt(x, y); }, [&] { return a < b; });
  compare(
      "where", gradient, [&] { return at::where(at::gt(x, 0), x, y); }, [&] { return where(a > 0, a, b); });
  compare(
      "clip", gradient, [&] { return at::minimum(at::maximum(x, y), y); }, [&] { return clip(a, b, b); });
  compare(
      "power", gradient, [&] { return at::pow(x, 2); }, [&] { return power(a, 2); });
  COMPARE_UNARY(exp);
  COMPARE_UNARY(abs);
  COMPARE_UNARY(sigmoid);
  COMPARE_UNARY(tril);
  COMPARE_BINARY(maximum);
  COMPARE_BINARY(logaddexp);
  COMPARE_BINARY(matmul);
  compare(
      "einsum", gradient,
      [&] {
        return at::einsum("ij,kj->ik", {x, y});
      },
      [&] {
        return einsum("ij,kj->ik", {a, b});
      });
}

#undef COMPARE_UNARY
#undef COMPARE_BINARY

}  // namespace

int main() {
  const NamedSharding whole(make_mesh({{"data", 1}}), P{});
  const at::Tensor x = at::randn({8, 8}), y = at::randn({8, 8});
  const Array a = device_put(from_tensor(x), whole), b = device_put(from_tensor(y), whole);
  std::printf("%-12s %-12s %8s %8s %9s   %s\n", "operation", "", "ATen us", "here us", "above", "middle half");
  {
    at::AutoGradMode off(false);
    compare_all("", x, y, a, b);
  }
  compare_all("grad mode on", x, y, a, b);
  Tape tape({a});
  compare_all("with grad", x.detach().requires_grad_(true), y, tape.shadows()[0], b);
  return 0;
}
