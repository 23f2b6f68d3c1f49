// Measures the overhead per operation of an open CommLedger, a CommunicationGuard and a CallerScope (source line).
//
// Operations on 8x8 arrays with a cached plan. Rounds with and without the object alternate. Prints the differences of
// the minimum and of the median times.
#include "sharding/accounting/ledger.h"

#include <ATen/core/grad_mode.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "sharding/accounting/communication_guard.h"
#include "sharding/base/caller.h"
#include "sharding/operations.h"
#include "sharding/redistribution/device_put.h"
#include "tests/benchmarks/timing.h"

namespace {

using namespace tessera;
using benchmarks::microseconds, benchmarks::summary, benchmarks::Times;

constexpr int rounds = 1500, calls = 50;

// Measures f without and with the object that `watch` makes, which lives during many calls of f.
template <class Watch, class F>
void compare(const char* what, Watch watch, F f) {
  std::vector<double> plain, watched;
  microseconds(calls, f);
  for (int r = 0; r < rounds; ++r) {
    plain.push_back(microseconds(calls, f));
    const auto watching = watch();
    watched.push_back(microseconds(calls, f));
  }
  const Times without = summary(std::move(plain)), with = summary(std::move(watched));
  std::printf("%-46s %8.3f %+9.3f %+9.3f\n", what, without.least, with.least - without.least,
              with.median - without.median);
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
  std::printf("%-46s %8s %9s %9s\n", "", "us", "more us", "by median");
  compare("an operation that moves nothing, ledger", ledger, [&](int) { return whole + whole; });
  compare("an operation that moves nothing, guard", guard, [&](int) { return whole + whole; });
  compare("an operation that moves nothing, caller's scope", scope, [&](int) { return whole + whole; });
  compare("an all_reduce, ledger", ledger, [&](int) { return exp(sum(x, {0})); });
  compare("an all_reduce, caller's scope", scope, [&](int) { return exp(sum(x, {0})); });
  const auto open_scope = [](int) { const CallerScope caller(std::source_location::current()); };
  std::printf("%-46s %8s %+9.3f\n", "opening and closing a scope", "",
              benchmarks::time(rounds, calls, open_scope).least);
  return 0;
}
