// Writes the events of a trace.
#include "sharding/accounting/trace_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

namespace tessera::detail {
namespace {

constexpr double microseconds = 1e6;

std::string quoted(std::string_view text) { return boost::json::serialize(boost::json::value(text)); }

// Perfetto treats process and thread 0 as idle, and a thread whose number equals its process's as the main thread.
// These offsets avoid both.
int pid_of(int process) { return process + 1; }
size_t tid_of(size_t track) { return track + 10'000; }

std::string name_event(const char* what, int process, size_t track, std::string_view name) {
  return fmt::format(R"({{"name":"{}","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})", what, pid_of(process),
                     tid_of(track), quoted(name));
}

void append(std::string& events, const std::string& event) { events += (events.empty() ? "" : ",\n") + event; }

}  // namespace

size_t TraceEvents::add_track(std::string_view name, int process) {
  tracks_.push_back({std::string(name), process});
  const size_t track = tracks_.size() - 1;
  const auto is_first = [&](const Track& t) { return t.process == process; };
  if (std::find_if(tracks_.begin(), tracks_.end(), is_first) == tracks_.end() - 1)
    append(events_, name_event("process_name", process, track, "process " + std::to_string(process)));
  append(events_, name_event("thread_name", process, track, name));
  return track;
}

size_t TraceEvents::take_track(std::string_view name, const TimeSpan& span, int process) {
  const auto is_free = [&](const Track& t) {
    return t.name == name && t.process == process && t.taken_until <= span.begin;
  };
  const auto found = std::find_if(tracks_.begin(), tracks_.end(), is_free);
  const size_t track = found == tracks_.end() ? add_track(name, process) : static_cast<size_t>(found - tracks_.begin());
  tracks_[track].taken_until = span.end;
  return track;
}

void TraceEvents::add(std::string_view phase, size_t track, std::string_view name, double begin,
                      std::string_view more) {
  append(events_, fmt::format(R"({{"name":{},"ph":"{}","pid":{},"tid":{},"ts":{:.3f},{}}})", quoted(name), phase,
                              pid_of(tracks_[track].process), tid_of(track), begin * microseconds, more));
}

void TraceEvents::add_slice(size_t track, std::string_view name, std::string_view category, const TimeSpan& span,
                            const boost::json::object& args) {
  add("X", track, name, span.begin,
      fmt::format(R"("dur":{:.3f},"cat":{},"args":{})", (span.end - span.begin) * microseconds, quoted(category),
                  boost::json::serialize(args)));
}

void TraceEvents::add_flow(std::string_view name, const std::vector<FlowPoint>& points) {
  for (size_t i = 0; i < points.size(); ++i) {
    const char* phase = i == 0 ? "s" : i + 1 == points.size() ? "f" : "t";
    add(phase, points[i].track, name, points[i].begin, fmt::format(R"("bp":"e","id":{},"cat":"flow")", flows_));
  }
  ++flows_;
}

std::string TraceEvents::to_json() const {
  return fmt::format("{{\"traceEvents\":[{}],\"displayTimeUnit\":\"ms\"}}\n", events_);
}

}  // namespace tessera::detail
