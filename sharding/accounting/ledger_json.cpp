// A ledger as JSON, and as a trace for chrome://tracing and Perfetto.
#include "sharding/accounting/ledger_json.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "sharding/accounting/trace_events.h"

namespace tessera {

namespace json = boost::json;

json::object detail::to_object(const CommRecord& r) {
  return {{"kind", r.kind},
          {"axes", r.mesh_axes},
          {"devices", r.num_devices},
          {"bytes", r.bytes},
          {"operation", r.operation},
          {"operand", r.operand},
          {"result", r.result},
          {"path", r.path},
          {"reason", r.reason},
          {"pass", r.backward ? "backward" : "forward"},
          {"file", r.where.file_name()},
          {"line", r.where.line()}};
}

std::string CommLedger::to_json() const {
  json::array collectives;
  for (const CommRecord& r : records()) collectives.push_back(detail::to_object(r));
  json::array beside;
  for (const UnplacedArray& x : unplaced())
    beside.push_back({{"path", x.path}, {"type", x.type}, {"file", x.where.file_name()}, {"line", x.where.line()}});
  return json::serialize(
             json::object{{"collectives", collectives}, {"count", count()}, {"bytes", bytes()}, {"unplaced", beside}}) +
         "\n";
}

std::string detail::chrome_trace_of(const std::vector<CommRecord>& records) {
  TraceEvents trace;
  std::vector<const CommRecord*> awaited;
  for (const CommRecord& r : records) awaited.push_back(&r);
  std::stable_sort(awaited.begin(), awaited.end(),
                   [](const auto* a, const auto* b) { return a->awaited.seconds < b->awaited.seconds; });
  double now = 0;
  for (const CommRecord* r : awaited) {
    const TimeSpan span{now, r->awaited.seconds};
    if (span.end > now) trace.add_slice(trace.take_track("computation", span), "computation", "computation", span);
    now = std::max(now, r->arrived.seconds);
  }
  for (const CommRecord& r : records) {
    const TimeSpan span{r.begun.seconds, r.arrived.seconds};
    json::object args = to_object(r);
    args["awaited"] = r.awaited.seconds * 1e6;  // in microseconds, as all moments of the trace
    trace.add_slice(trace.take_track("mesh axes " + r.mesh_axes, span), r.kind + " for " + r.operation,
                    r.backward ? "backward" : "forward", span, args);
  }
  return trace.to_json();
}

std::string CommLedger::chrome_trace() const { return detail::chrome_trace_of(records()); }

}  // namespace tessera
