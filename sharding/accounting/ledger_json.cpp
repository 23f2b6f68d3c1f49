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

// The tracks of a trace: "computation", and for each set of axes one, or several if its collectives overlap.
class Tracks {
 public:
  explicit Tracks(json::array& events) : events_(events) {}
  // The number of the first track of this name that is free at `begin`; it is taken until `end`.
  size_t take(const std::string& name, const detail::TimeSpan& span) {
    const auto is_free = [&](const Track& t) { return t.name == name && t.taken_until <= span.begin; };
    auto track = std::find_if(tracks_.begin(), tracks_.end(), is_free);
    if (track == tracks_.end()) track = tracks_.insert(track, add(name));
    track->taken_until = span.end;
    return static_cast<size_t>(track - tracks_.begin());
  }

 private:
  struct Track {
    std::string name;
    double taken_until = 0;
  };
  Track add(const std::string& name) {
    events_.push_back(
        {{"name", "thread_name"}, {"ph", "M"}, {"pid", 0}, {"tid", tracks_.size()}, {"args", {{"name", name}}}});
    return {name};
  }

  json::array& events_;
  std::vector<Track> tracks_;
};

constexpr double microseconds = 1e6;

json::object event(const std::string& name, const char* category, size_t track, const detail::TimeSpan& span) {
  return {{"name", name},
          {"cat", category},
          {"ph", "X"},
          {"pid", 0},
          {"tid", track},
          {"ts", span.begin * microseconds},
          {"dur", (span.end - span.begin) * microseconds}};
}

}  // namespace

std::string CommLedger::to_json() const {
  json::array collectives;
  for (const CommRecord& r : records()) collectives.push_back(detail::to_object(r));
  return json::serialize(json::object{{"collectives", collectives}, {"count", count()}, {"bytes", bytes()}}) + "\n";
}

std::string detail::chrome_trace_of(const Timeline& timeline) {
  json::array events;
  Tracks tracks(events);
  for (const TimeSpan& span : timeline.computing)
    events.push_back(event("computation", "computation", tracks.take("computation", span), span));
  for (const auto& [span, awaited, record] : timeline.collectives) {
    const size_t track = tracks.take("mesh axes " + record->axes, span);
    json::object e =
        event(record->kind + " for " + record->operation, record->backward ? "backward" : "forward", track, span);
    json::object args = to_object(*record);
    args["awaited"] = awaited * microseconds;  // on the trace's clock
    e["args"] = std::move(args);
    events.push_back(std::move(e));
  }
  return json::serialize(json::object{{"traceEvents", events}, {"displayTimeUnit", "ms"}}) + "\n";
}

}  // namespace tessera
