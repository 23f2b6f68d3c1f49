// A ledger as JSON, and as a trace for chrome://tracing.
#include "sharding/accounting/ledger_json.h"

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

namespace {

constexpr double microseconds = 1e6;

}  // namespace

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

std::string detail::chrome_trace_of(const Timeline& timeline) {
  TraceEvents trace;
  for (const TimeSpan& span : timeline.computing)
    trace.add_slice(trace.take_track("computation", span), "computation", "computation", span);
  for (const auto& [span, awaited, record] : timeline.collectives) {
    json::object args = to_object(*record);
    args["awaited"] = awaited * microseconds;  // on the trace's clock
    trace.add_slice(trace.take_track("mesh axes " + record->mesh_axes, span),
                    record->kind + " for " + record->operation, record->backward ? "backward" : "forward", span, args);
  }
  return trace.to_json();
}

}  // namespace tessera
