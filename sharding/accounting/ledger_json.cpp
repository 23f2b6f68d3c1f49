// A ledger as JSON, and as a trace for chrome://tracing.
#include "sharding/accounting/ledger_json.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

namespace tessera {

namespace json = boost::json;

json::object detail::to_object(const CommRecord& r) {
  return {{"kind", r.kind},
          {"axes", r.axes},
          {"devices", r.devices},
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

// The number of the track for these axes, which begins with its name.
size_t track_of(const std::string& axes, std::vector<std::string>& tracks, json::array& events) {
  const auto known = std::find(tracks.begin(), tracks.end(), axes);
  if (known != tracks.end()) return static_cast<size_t>(known - tracks.begin());
  tracks.push_back(axes);
  events.push_back({{"name", "thread_name"},
                    {"ph", "M"},
                    {"pid", 0},
                    {"tid", tracks.size() - 1},
                    {"args", {{"name", "mesh axes " + axes}}}});
  return tracks.size() - 1;
}

}  // namespace

std::string CommLedger::to_json() const {
  json::array collectives;
  for (const CommRecord& r : records()) collectives.push_back(detail::to_object(r));
  return json::serialize(json::object{{"collectives", collectives}, {"count", count()}, {"bytes", bytes()}}) + "\n";
}

std::string CommLedger::chrome_trace(const CommTime& time) const {
  json::array events;
  std::vector<std::string> tracks;
  double now = 0;  // in microseconds
  for (const CommRecord& r : records()) {
    const double duration = time(r) * 1e6;
    const size_t track = track_of(r.axes, tracks, events);
    events.push_back({{"name", r.kind + " for " + r.operation},
                      {"cat", r.backward ? "backward" : "forward"},
                      {"ph", "X"},
                      {"pid", 0},
                      {"tid", track},
                      {"ts", now},
                      {"dur", duration},
                      {"args", detail::to_object(r)}});
    now += duration;
  }
  return json::serialize(json::object{{"traceEvents", events}, {"displayTimeUnit", "ms"}}) + "\n";
}

}  // namespace tessera
