// Times of calls that take microseconds, on a machine that does other work as well.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace tessera::benchmarks {

// Many short rounds. What interrupts a round only makes it longer, so the least is what the work itself takes; the
// median says how much was interrupted.
struct Times {
  double least, median;
};

inline Times summary(std::vector<double> rounds) {
  std::sort(rounds.begin(), rounds.end());
  return {rounds.front(), rounds[rounds.size() / 2]};
}

// Microseconds that f(i) takes, over so many calls.
template <class F>
double microseconds(int calls, F&& f) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) f(i);
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / calls;
}

template <class F>
double seconds_of(F&& f) {
  return 1e-6 * microseconds(1, [&](int) { f(); });
}

inline double median(std::vector<double> values) { return summary(std::move(values)).median; }

template <class F>
Times time(int rounds, int calls, F&& f) {
  std::vector<double> times;
  for (int r = 0; r < rounds; ++r) times.push_back(microseconds(calls, f));
  return summary(std::move(times));
}

// Two things in turn, round by round, each the first in every other round, so that both meet the same machine.
struct Pair {
  Times first, second;
  double more() const { return second.least - first.least; }
  double more_by_median() const { return second.median - first.median; }
};

template <class F, class G>
Pair time_in_turn(int rounds, int calls, F&& f, G&& g) {
  std::vector<double> a, b;
  microseconds(calls, f), microseconds(calls, g);
  for (int r = 0; r < rounds; ++r) {
    if (r % 2) a.push_back(microseconds(calls, f));
    b.push_back(microseconds(calls, g));
    if (r % 2 == 0) a.push_back(microseconds(calls, f));
  }
  return {summary(std::move(a)), summary(std::move(b))};
}

}  // namespace tessera::benchmarks
