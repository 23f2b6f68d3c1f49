// Prints CommLedger as tables by kind, by mesh axis and by line, as JSON and as a trace.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <map>
#include <tuple>

#include "sharding/accounting/ledger.h"
#include "sharding/accounting/trace_events.h"
#include "sharding/base/caller.h"
#include "sharding/base/table.h"

namespace tessera {

using namespace detail;
namespace json = boost::json;

namespace {

// The sums of the records of one row.
struct Sum {
  int64_t count = 0, bytes = 0, devices = 0;
  std::map<std::string, int> causes;

  void add(const CommRecord& r, const std::string& cause) {
    count += 1, bytes += r.bytes, devices = r.num_devices;
    causes[cause] += 1;
  }
  std::string text() const {
    std::vector<std::string> names;
    for (const auto& [name, n] : causes) names.push_back(n == 1 ? name : fmt::format("{} x{}", name, n));
    return fmt::format("{}", fmt::join(names, ", "));
  }
};

const std::string nothing = "no communication\n";

// Returns one line per line of the program, with at most three of its arrays.
std::string unplaced_lines(const std::vector<UnplacedArray>& unplaced) {
  std::vector<std::string> files;
  for (const UnplacedArray& x : unplaced) files.push_back(x.where.file_name());
  const std::map<std::string, std::string> names = short_names(files);
  std::map<std::string, std::vector<std::string>> by_line;
  for (const UnplacedArray& x : unplaced)
    by_line[line_name(names.at(x.where.file_name()), x.where.line())].push_back(x.path + " " + x.type);
  std::string text;
  for (auto& [line, arrays] : by_line) {
    const size_t more = arrays.size() - std::min<size_t>(arrays.size(), 3);
    arrays.resize(arrays.size() - more);
    text += fmt::format("never placed, so each device computes with all of it: {}{} ({})\n", fmt::join(arrays, ", "),
                        more ? fmt::format(" and {} more", more) : "", line);
  }
  return text;
}

Table table_of(const std::vector<CommRecord>& records, int64_t count, int64_t bytes) {
  std::map<std::tuple<bool, std::string, std::string>, Sum> rows;
  for (const CommRecord& r : records) rows[{r.backward, r.mesh_axes, r.kind}].add(r, r.operation);
  Table table({"collective    ", "mesh axes    ", " devices", "count", "bytes/device", "pass    ", "caused by"},
              "< < ddd");
  for (const auto& [key, row] : rows)
    table.add({std::get<2>(key), std::get<1>(key), row.devices, row.count, row.bytes,
               std::get<0>(key) ? "backward" : "forward", row.text()});
  table.add({"total", "", "", count, bytes});
  return table;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const CommLedger& ledger) { return out << ledger.to_text(); }

std::string CommLedger::to_text() const {
  const std::string table = records().empty() ? nothing : table_of(records(), count(), bytes()).to_text();
  return table + unplaced_lines(unplaced());
}

std::string CommLedger::to_markdown() const {
  const std::string table = records().empty() ? nothing : table_of(records(), count(), bytes()).to_markdown();
  const std::string lines = unplaced_lines(unplaced());
  return table + (lines.empty() ? "" : '\n' + lines);
}

std::string CommLedger::to_text_by_mesh_axis() const {
  struct Axis {
    Sum forward, backward;
  };
  std::map<std::string, Axis> rows;
  for (const CommRecord& r : records()) {
    Axis& row = rows[r.mesh_axes];
    (r.backward ? row.backward : row.forward).add(r, r.kind);
  }
  if (rows.empty()) return nothing;
  Table table({"mesh axes   ", " devices", " forward", "bytes/device", " backward", "bytes/device"}, "<ddddd");
  for (const auto& [axes, row] : rows)
    table.add({axes, std::max(row.forward.devices, row.backward.devices), row.forward.count, row.forward.bytes,
               row.backward.count, row.backward.bytes});
  return table.to_text();
}

std::string CommLedger::to_text_by_line() const {
  std::vector<std::string> files;
  for (const CommRecord& r : records()) files.push_back(r.where.file_name());
  const std::map<std::string, std::string> names = short_names(files);
  std::map<std::string, Sum> rows;
  for (const CommRecord& r : records())
    rows[line_name(names.at(r.where.file_name()), r.where.line())].add(
        r, fmt::format("{} over {} for {}", r.kind, r.mesh_axes, r.operation));
  if (rows.empty()) return nothing + unplaced_lines(unplaced());
  std::vector<std::pair<std::string, Sum>> sorted(rows.begin(), rows.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  Table table({"line", "count", "bytes/device", "what"}, "<dd");
  for (const auto& [name, row] : sorted) table.add({name, row.count, row.bytes, row.text()});
  return table.to_text() + unplaced_lines(unplaced());
}

// ---- JSON and a trace

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
    args["awaited"] = r.awaited.seconds * 1e6;  // in microseconds, the unit of traces
    trace.add_slice(trace.take_track("mesh axes " + r.mesh_axes, span), r.kind + " for " + r.operation,
                    r.backward ? "backward" : "forward", span, args);
  }
  return trace.to_json();
}

std::string CommLedger::chrome_trace() const { return detail::chrome_trace_of(records()); }

}  // namespace tessera
