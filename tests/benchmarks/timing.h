// Times calls that take microseconds, on a machine that also runs other programs.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace tessera::benchmarks {

// Times of many short rounds. Interruptions only make a round longer, so the minimum is the time of the work itself;
// the median shows how much was interrupted.
struct Times {
  double least, median;
};

inline Times summary(std::vector<double> rounds) {
  std::sort(rounds.begin(), rounds.end());
  return {rounds.front(), rounds[rounds.size() / 2]};
}

// Returns the microseconds of f(i), averaged over `calls`.
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

// Times two functions alternately, round by round. Each is first in every other round, so that both see the same load.
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
