// A program's way from moment to moment of its records.
#include "sharding/accounting/timeline.h"

#include <algorithm>
#include <numeric>

namespace tessera::detail {
namespace {

// Indices of records in the order in which they are awaited.
std::vector<size_t> by_awaited(const std::vector<CommRecord>& records, double CommMoment::*clock) {
  std::vector<size_t> order(records.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return records[a].awaited.*clock < records[b].awaited.*clock; });
  return order;
}

// The program's own clock: it computes, or waits.
class Program {
 public:
  Program(Timeline& timeline, double flops_per_second) : timeline_(timeline), flops_per_second_(flops_per_second) {}
  double now() const { return now_; }
  void compute_until(double flops) {
    const double seconds = flops_per_second_ > 0 ? std::max(0.0, flops - flops_) / flops_per_second_ : 0;
    flops_ = std::max(flops, flops_);
    if (seconds > 0) timeline_.computing.push_back({now_, now_ + seconds});
    now_ += seconds;
  }
  void wait_until(double moment) { now_ = std::max(now_, moment); }

 private:
  Timeline& timeline_;
  const double flops_per_second_;
  double now_ = 0, flops_ = 0;
};

}  // namespace

Timeline measured_timeline(const std::vector<CommRecord>& records) {
  Timeline timeline;
  for (const CommRecord& r : records)
    timeline.collectives.push_back({{r.begun.seconds, r.arrived.seconds}, r.awaited.seconds, &r});
  double now = 0;
  for (const size_t i : by_awaited(records, &CommMoment::seconds)) {
    if (records[i].awaited.seconds > now) timeline.computing.push_back({now, records[i].awaited.seconds});
    now = std::max(now, records[i].arrived.seconds);
  }
  timeline.end = now;
  return timeline;
}

// What is begun and what is awaited at one moment may be taken in any order, since all share one way.
Timeline predicted_timeline(const std::vector<CommRecord>& records, const CommTime& time, double flops_per_second,
                            double flops) {
  Timeline timeline;
  Program program(timeline, flops_per_second);
  const std::vector<size_t> awaited = by_awaited(records, &CommMoment::flops);
  auto next = awaited.begin();
  double way_is_free = 0;
  // Nothing that is awaited before `moment` is left, of those that were begun.
  const auto come_to = [&](double moment) {
    for (; next != awaited.end() && *next < timeline.collectives.size() && records[*next].awaited.flops <= moment;
         ++next) {
      Timeline::Collective& collective = timeline.collectives[*next];
      program.compute_until(records[*next].awaited.flops);
      collective.awaited = program.now();
      program.wait_until(collective.span.end);
    }
    program.compute_until(moment);
  };
  for (const CommRecord& r : records) {
    come_to(r.begun.flops);
    const double begin = std::max(way_is_free, program.now());
    way_is_free = begin + time(r);
    timeline.collectives.push_back({{begin, way_is_free}, way_is_free, &r});
  }
  come_to(flops);
  program.wait_until(way_is_free);
  timeline.end = program.now();
  return timeline;
}

}  // namespace tessera::detail
