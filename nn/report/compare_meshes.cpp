// A forecast for each mesh, and the table of all.
#include "nn/report/compare_meshes.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <ostream>

#include "nn/report/memory_report.h"
#include "sharding/accounting/forecast.h"
#include "sharding/accounting/timeline.h"
#include "sharding/diagnostics/fail.h"
#include "sharding/diagnostics/text_format.h"
#include "sharding/redistribution/gather_schedule.h"

namespace tessera::nn {

using tessera::detail::learned_gather_orders;
using tessera::detail::predicted_timeline;
using tessera::detail::with_commas;

namespace {

// ---- times

const Link& link_over(const std::string& axes, const Hardware& hardware) {
  const Link* slowest = nullptr;
  for (size_t begin = 0; begin <= axes.size();) {
    const size_t end = std::min(axes.find(',', begin), axes.size());
    const auto found = hardware.links.find(axes.substr(begin, end - begin));
    const Link& link = found == hardware.links.end() ? hardware.link : found->second;
    if (!slowest || link.bytes_per_second < slowest->bytes_per_second) slowest = &link;
    begin = end + 1;
  }
  return *slowest;
}

void check_speed(const char* what, double value, bool may_be_zero = false) {
  if (!std::isfinite(value) || value < 0 || (value == 0 && !may_be_zero))
    fail(ErrorKind::bad_argument, "compare_meshes",
         "{} {} given, expected a number above 0. Give what the hardware reaches.", what, value);
}

void check(const Hardware& hardware) {
  check_speed("flops_per_second", hardware.flops_per_second);
  const auto check_link = [](const Link& link) {
    check_speed("bytes_per_second", link.bytes_per_second);
    check_speed("latency", link.latency, /*may_be_zero=*/true);
  };
  check_link(hardware.link);
  for (const auto& [axis, link] : hardware.links) check_link(link);
}

// ---- one mesh

std::vector<Traffic> traffic_of(const CommLedger& ledger, const Hardware& hardware) {
  std::map<std::pair<std::string, std::string>, Traffic> rows;
  for (const CommRecord& r : ledger.records()) {
    Traffic& row = rows[{r.kind, r.axes}];
    row.kind = r.kind, row.axes = r.axes;
    row.count += 1;
    row.bytes += r.bytes;
    row.seconds += collective_seconds(r.kind, r.axes, r.devices, r.bytes, hardware);
  }
  std::vector<Traffic> traffic;
  for (auto& [key, row] : rows) traffic.push_back(std::move(row));
  return traffic;
}

double hidden_seconds(const Forecast& forecast, const StepForecast& step, const Hardware& hardware) {
  const auto time = [&](const CommRecord& r) {
    return collective_seconds(r.kind, r.axes, r.devices, r.bytes, hardware);
  };
  const double end = predicted_timeline(forecast.ledger().records(), time, hardware.flops_per_second, step.flops).end;
  const double hidden = step.compute_seconds + step.communication_seconds - end;
  return hidden > 1e-12 * end ? hidden : 0;  // else it is rounding
}

StepForecast forecast_of(const Mesh& mesh, const std::function<PlacementTable(const Mesh&)>& step,
                         const Hardware& hardware) {
  StepForecast result{.mesh = mesh};
  const Forecast forecast;
  try {
    for (const MemoryShare& share : detail::shares_of(step(mesh)))
      result.at_rest.emplace_back(share.name, share.bytes_per_device);
  } catch (const Error& error) {
    result.error = error.what();
    return result;
  }
  result.activation_bytes = forecast.activation_bytes();
  result.peak_bytes = forecast.peak_bytes();
  result.flops = forecast.flops();
  result.traffic = traffic_of(forecast.ledger(), hardware);
  result.compute_seconds = result.flops / hardware.flops_per_second;
  for (const Traffic& row : result.traffic) result.communication_seconds += row.seconds;
  result.hidden_seconds = hidden_seconds(forecast, result, hardware);
  return result;
}

// Of a step that knows what the one before it gathered.
StepForecast forecast_on(const Mesh& mesh, const std::function<PlacementTable(const Mesh&)>& step,
                         const Hardware& hardware) {
  const Mesh abstract = make_mesh(mesh.axes(), {.abstract = true});
  const int64_t learned = learned_gather_orders();
  StepForecast first = forecast_of(abstract, step, hardware);
  return learned == learned_gather_orders() ? first : forecast_of(abstract, step, hardware);
}

// ---- the table

using Line = std::vector<std::string>;  // a title and a cell for each mesh

// Lines as they come, each title once, in the order of the meshes that have it first.
class Table {
 public:
  explicit Table(size_t columns) : columns_(columns) {}
  void set(const std::string& title, size_t column, std::string cell) {
    auto line = std::find_if(lines_.begin(), lines_.end(), [&](const Line& l) { return l[0] == title; });
    if (line == lines_.end()) {
      line = lines_.insert(lines_.end(), Line(columns_ + 1, "-"));
      (*line)[0] = title;
    }
    (*line)[column + 1] = std::move(cell);
  }
  const std::vector<Line>& lines() const { return lines_; }

 private:
  size_t columns_;
  std::vector<Line> lines_;
};

using Fill = void (*)(Table&, const StepForecast&, size_t column);

void fill_memory(Table& table, const StepForecast& s, size_t column) {
  for (const auto& [name, bytes] : s.at_rest) table.set(name + ", bytes", column, with_commas(bytes));
}

void fill_peaks(Table& table, const StepForecast& s, size_t column) {
  table.set("activations, bytes", column, with_commas(s.activation_bytes));
  table.set("peak, bytes", column, with_commas(s.peak_bytes));
}

void fill_traffic(Table& table, const StepForecast& s, size_t column) {
  for (const Traffic& t : s.traffic)
    table.set(fmt::format("{} over {}", t.kind, t.axes), column,
              fmt::format("{} x, {}", t.count, with_commas(t.bytes)));
}

void fill_times(Table& table, const StepForecast& s, size_t column) {
  table.set("operations", column, fmt::format("{:.4g}", s.flops));
  table.set("compute, ms", column, fmt::format("{:.4g}", s.compute_seconds * 1e3));
  table.set("communication, ms", column, fmt::format("{:.4g}", s.communication_seconds * 1e3));
  if (s.hidden_seconds > 0) table.set("of that hidden, ms", column, fmt::format("{:.4g}", s.hidden_seconds * 1e3));
  table.set("step, ms", column, fmt::format("{:.4g}", s.seconds() * 1e3));
}

// Section by section, so that lines that only some meshes have stand with their like.
std::vector<Line> lines_of(const std::vector<StepForecast>& steps) {
  Table table(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) table.set("on one device", i, steps[i].mesh.to_string());
  for (const Fill fill : {fill_memory, fill_peaks, fill_traffic, fill_times})
    for (size_t i = 0; i < steps.size(); ++i)
      if (steps[i].error.empty()) fill(table, steps[i], i);
  return table.lines();
}

// What went wrong, below the table.
std::string errors_of(const std::vector<StepForecast>& steps) {
  std::string text;
  for (const StepForecast& s : steps)
    if (!s.error.empty()) text += fmt::format("{}: {}\n", s.mesh.to_string(), s.error);
  return text;
}

boost::json::object to_object(const StepForecast& s) {
  boost::json::object mesh, bytes;
  for (const MeshAxis& axis : s.mesh.axes()) mesh[axis.name] = axis.size;
  for (const auto& [name, n] : s.at_rest) bytes[name] = n;
  bytes["activations"] = s.activation_bytes;
  bytes["peak"] = s.peak_bytes;
  boost::json::array collectives;
  for (const Traffic& t : s.traffic)
    collectives.push_back(
        {{"kind", t.kind}, {"axes", t.axes}, {"count", t.count}, {"bytes", t.bytes}, {"seconds", t.seconds}});
  return {{"mesh", std::move(mesh)},
          {"devices", s.mesh.size()},
          {"error", s.error.empty() ? boost::json::value(nullptr) : boost::json::value(s.error)},
          {"bytes", std::move(bytes)},
          {"flops", s.flops},
          {"collectives", std::move(collectives)},
          {"compute_seconds", s.compute_seconds},
          {"communication_seconds", s.communication_seconds},
          {"hidden_seconds", s.hidden_seconds},
          {"seconds", s.seconds()}};
}

}  // namespace

double collective_seconds(const std::string& kind, const std::string& axes, int64_t devices, int64_t bytes,
                          const Hardware& hardware) {
  const Link& link = link_over(axes, hardware);
  const auto n = static_cast<double>(devices), b = static_cast<double>(bytes);
  const auto rounds = [&](double count, double bytes_each) {
    return count * (bytes_each / link.bytes_per_second + link.latency);
  };
  if (kind.starts_with("all_reduce")) return rounds(2 * (n - 1), b / n);
  if (kind == "all_gather" || kind == "all_to_all") return rounds(n - 1, b / n);
  if (kind == "reduce_scatter") return rounds(n - 1, b);
  return rounds(1, b);
}

std::string MeshComparison::to_text() const {
  std::string line = "<";
  for (size_t i = 0; i < steps_.size(); ++i) line += "  >";
  return tessera::detail::text_table(lines_of(steps_), line) + errors_of(steps_);
}

std::string MeshComparison::to_markdown() const {
  std::string text;
  const std::vector<Line> lines = lines_of(steps_);
  for (size_t l = 0; l < lines.size(); ++l) {
    for (const std::string& cell : lines[l]) text += "| " + cell + ' ';
    text += "|\n";
    if (l > 0) continue;
    text += "|---";
    for (size_t i = 0; i < steps_.size(); ++i) text += "|---:";
    text += "|\n";
  }
  const std::string errors = errors_of(steps_);
  return errors.empty() ? text : text + '\n' + errors;
}

std::string MeshComparison::to_json() const {
  boost::json::array meshes;
  for (const StepForecast& s : steps_) meshes.push_back(to_object(s));
  return boost::json::serialize(boost::json::object{{"meshes", std::move(meshes)}});
}

std::ostream& operator<<(std::ostream& out, const MeshComparison& comparison) { return out << comparison.to_text(); }

MeshComparison compare_meshes(const std::function<PlacementTable(const Mesh&)>& step, const std::vector<Mesh>& meshes,
                              const Hardware& hardware) {
  check(hardware);
  std::vector<StepForecast> steps;
  for (const Mesh& mesh : meshes) steps.push_back(forecast_on(mesh, step, hardware));
  return MeshComparison(std::move(steps));
}

}  // namespace tessera::nn
