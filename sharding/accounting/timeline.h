// Timeline: when the collectives of a ledger run and when the program computes, as measured or as predicted.
#pragma once

#include <vector>

#include "sharding/accounting/ledger.h"

namespace tessera::detail {

// In seconds.
struct TimeSpan {
  double begin = 0, end = 0;
};

struct Timeline {
  struct Collective {
    TimeSpan span;
    double awaited;  // when the program stopped for it
    const CommRecord* record;
  };
  std::vector<Collective> collectives;  // in the order of the records, which outlive this
  std::vector<TimeSpan> computing;      // nothing but that; between them the program waits for a collective
  double end = 0;
};

// By the thread's clock.
Timeline measured_timeline(const std::vector<CommRecord>& records);

// As on devices of which each does `flops_per_second` operations, and `flops` in all; 0 a second: computing takes no
// time. A collective takes as long as `time` says. All share one way, in the order in which they are begun; the program
// goes on until it needs one that is not there. All of them are there at the end.
Timeline predicted_timeline(const std::vector<CommRecord>& records, const CommTime& time, double flops_per_second,
                            double flops);

}  // namespace tessera::detail
