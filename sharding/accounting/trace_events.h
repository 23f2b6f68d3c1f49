// TraceEvents: a trace for chrome://tracing and Perfetto; collectives as JSON and as such a trace.
#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/accounting/ledger.h"

namespace tessera::detail {

// In seconds of the trace's clock.
struct TimeSpan {
  double begin = 0, end = 0;
};

// In the JSON of the Trace Event Format. Moments are in seconds of the trace's clock and written to a nanosecond.
class TraceEvents {
 public:
  // The number of a new track of a process; slices on one track are disjoint or nested.
  size_t add_track(std::string_view name, int process = 0);
  // The first track of this name that is free at the span's begin, or a new one; it is taken until the span's end.
  size_t take_track(std::string_view name, const TimeSpan& span, int process = 0);

  void add_slice(size_t track, std::string_view name, std::string_view category, const TimeSpan& span,
                 const boost::json::object& args = {});

  // An arrow through slices that were added before: each point names one by its track and its begin.
  struct FlowPoint {
    size_t track;
    double begin;
  };
  void add_flow(std::string_view name, const std::vector<FlowPoint>& points);

  std::string to_json() const;

 private:
  struct Track {
    std::string name;
    int process;
    double taken_until = 0;
  };
  void add(std::string_view phase, size_t track, std::string_view name, double begin, std::string_view more);

  std::vector<Track> tracks_;
  std::string events_;
  int64_t flows_ = 0;
};

// Returns all fields of a record, as CommLedger::to_json() writes them.
boost::json::object to_object(const CommRecord& record);
// Returns the trace that CommLedger::chrome_trace() documents.
std::string chrome_trace_of(const std::vector<CommRecord>& records);

}  // namespace tessera::detail
