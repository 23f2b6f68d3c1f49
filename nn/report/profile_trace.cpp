// ProfileReport as a trace: each process's program and collectives, with flows to the slices that waited for them.
#include <algorithm>

#include "nn/report/profile.h"
#include "sharding/accounting/trace_events.h"

namespace tessera::nn {

using namespace detail;
using tessera::detail::TimeSpan;
using tessera::detail::TraceEvents;

namespace {

class TraceOfProcess {
 public:
  // Writes the tracks of one process. `origin` is the begin of the trace, on the clock of process 0.
  TraceOfProcess(TraceEvents& trace, const ProcessProfile& profile, int64_t origin)
      : trace_(trace), profile_(profile), origin_(origin + profile.clock_ahead) {
    program_ = trace_.add_track("program", profile.process);
    for (size_t i = 0; i < profile.steps.size(); ++i) add(i);
  }

 private:
  double seconds(int64_t moment) const { return 1e-9 * static_cast<double>(moment - origin_); }
  TimeSpan span(int64_t begin, int64_t end) const { return {seconds(begin), seconds(end)}; }

  boost::json::object args_of(const Slice& slice) const {
    boost::json::object args{{"pass", name_of(slice.pass)}};
    if (slice.module) args["module"] = profile_.text(slice.module);
    if (slice.file) args["line"] = profile_.text(slice.file) + ":" + std::to_string(slice.line);
    return args;
  }

  boost::json::object args_of(const Transfer& t) const {
    return {{"bytes", t.bytes},
            {"devices", t.devices},
            {"path", profile_.text(t.path)},
            {"reason", profile_.text(t.reason)},
            {"pass", name_of(t.pass)},
            {"line", profile_.text(t.file) + ":" + std::to_string(t.line)}};
  }

  void add(size_t number) {
    const StepSlices& step = profile_.steps[number];
    for (const Slice& slice : step.slices)
      if (slice.parent < 0)
        trace_.add_slice(program_, "step " + std::to_string(number + 1), "step", span(slice.begin, slice.end));
      else
        trace_.add_slice(program_, name_in_trace(slice), name_of(slice.part), span(slice.begin, slice.end),
                         args_of(slice));
    for (size_t i = 0; i < step.transfers.size(); ++i) add(step, i);
  }

  std::string name_in_trace(const Slice& slice) const {
    return (slice.part == TimePart::collectives ? "wait for " : "") + profile_.text(slice.name);
  }

  void add(const StepSlices& step, size_t i) {
    const Transfer& t = step.transfers[i];
    const TimeSpan way = span(t.begin, std::max(t.arrived, t.begin + 1));
    const size_t track = trace_.take_track("mesh axes " + profile_.text(t.axes), way, profile_.process);
    trace_.add_slice(track, profile_.label(t), "collective", way, args_of(t));
    std::vector<TraceEvents::FlowPoint> points{{track, way.begin}};
    for (const int waited : {step.waits[i], step.consumers[i]})
      if (waited >= 0) points.push_back({program_, seconds(step.slices[static_cast<size_t>(waited)].begin)});
    if (points.size() > 1) trace_.add_flow(profile_.text(t.kind), points);
  }

  TraceEvents& trace_;
  const ProcessProfile& profile_;
  int64_t origin_;
  size_t program_ = 0;
};

}  // namespace

std::string ProfileReport::chrome_trace() const {
  int64_t origin = INT64_MAX;
  for (const ProcessProfile& p : processes_)
    for (const StepSlices& step : p.steps) {
      origin = std::min(origin, step.slices[0].begin - p.clock_ahead);
      for (const Transfer& t : step.transfers) origin = std::min(origin, t.begin - p.clock_ahead);
    }
  TraceEvents trace;
  for (const ProcessProfile& p : processes_) TraceOfProcess(trace, p, origin);
  return trace.to_json();
}

}  // namespace tessera::nn
