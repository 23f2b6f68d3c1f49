// What an open ledger, a guard and the caller's line add to an operation: 8x8 arrays, the plan already known.
//
// Both sides run in turn, in many short rounds; the figure is the median of the differences.
#include "sharding/ledger.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

#include "sharding/caller.h"
#include "sharding/device_put.h"
#include "sharding/guard.h"
#include "sharding/operations.h"

namespace {

using namespace tessera;

constexpr int rounds = 400, calls = 300;

template <class F>
double microseconds(F& f) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) f();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / calls;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// f without and with `watched`, of which f's caller makes one for each round.
template <class Watch, class F>
void compare(const char* what, Watch watch, F f) {
  std::vector<double> plain, difference;
  microseconds(f);
  for (int r = 0; r < rounds; ++r) {
    plain.push_back(microseconds(f));
    const auto watching = watch();
    difference.push_back(microseconds(f) - plain.back());
  }
  std::printf("%-46s %8.3f %+9.3f\n", what, median(plain), median(difference));
}

}  // namespace

int main() {
  at::AutoGradMode off(false);
  const Mesh mesh = make_mesh({{"data", 2}});
  const Array x = device_put(ones({8, 8}), NamedSharding(mesh, P{"data"})),
              whole = device_put(ones({8, 8}), NamedSharding(mesh, P{}));
  const auto ledger = [] { return std::make_unique<CommLedger>(); };
  const auto guard = [] { return std::make_unique<CommunicationGuard>(forbid_implicit_communication()); };
  const auto scope = [] { return std::make_unique<CallerScope>(std::source_location::current()); };
  std::printf("%-46s %8s %9s\n", "", "us", "more us");
  compare("an operation that moves nothing, ledger", ledger, [&] { return whole + whole; });
  compare("an operation that moves nothing, guard", guard, [&] { return whole + whole; });
  compare("an operation that moves nothing, caller's scope", scope, [&] { return whole + whole; });
  compare("an all_reduce, ledger", ledger, [&] { return exp(sum(x, {0})); });
  compare("an all_reduce, caller's scope", scope, [&] { return exp(sum(x, {0})); });
  const auto open_scope = [] { const CallerScope caller(std::source_location::current()); };
  std::printf("%-46s %8s %+9.3f\n", "opening and closing a scope", "", microseconds(open_scope));
  return 0;
}
