// TraceEvents: a trace for chrome://tracing and Perfetto. Also converts collectives to JSON and to such a trace.
#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/accounting/ledger.h"

namespace tessera::detail {

// A time span, in seconds of the trace's clock.
struct TimeSpan {
  double begin = 0, end = 0;
};

// Writes JSON in the Trace Event Format. Times are in seconds of the trace's clock and are written to the nanosecond.
class TraceEvents {
 public:
  // Adds a track to a process and returns its number. Slices on one track must be disjoint or nested.
  size_t add_track(std::string_view name, int process = 0);
  // Returns the first track of this name that is free at the span's begin, or a new one, and reserves it until the
  // span's end.
  size_t take_track(std::string_view name, const TimeSpan& span, int process = 0);

  void add_slice(size_t track, std::string_view name, std::string_view category, const TimeSpan& span,
                 const boost::json::object& args = {});

  // Adds an arrow through existing slices; each point selects one by its track and begin.
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
