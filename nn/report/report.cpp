// Report: its data as JSON, inserted into the page that the build makes from the files in nn/report/.
#include "nn/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <map>
#include <string_view>

#include "sharding/accounting/trace_events.h"
#include "sharding/base/fail.h"

namespace tessera::nn {

namespace detail {
// Empty page, which the build makes from the files in nn/report. "{{data}}" marks the place of the data.
extern const std::string_view report_page;

// ---- curves

Curve extremes(const Curve& curve, size_t most) {
  if (curve.size() <= 2 * most) return curve;
  const auto lower = [](const CurvePoint& a, const CurvePoint& b) { return a.y < b.y; };
  Curve kept;
  for (size_t i = 0; i < most; ++i) {
    const auto begin = curve.begin() + static_cast<ptrdiff_t>(i * curve.size() / most);
    const auto end = curve.begin() + static_cast<ptrdiff_t>((i + 1) * curve.size() / most);
    const auto [low, high] = std::minmax_element(begin, end, lower);
    kept.push_back(*std::min(low, high));
    if (low != high) kept.push_back(*std::max(low, high));
  }
  return kept;
}

Curve centred_means(const Curve& curve, size_t most) {
  const size_t n = curve.size(), half = n / 40, stride = 1 + n / most;
  std::vector<double> sums = {0};
  for (const CurvePoint& point : curve) sums.push_back(sums.back() + point.y);
  const auto mean_at = [&](size_t i) {
    const size_t reach = std::min(half, i), begin = i - reach, end = std::min(i + reach + 1, n);
    return CurvePoint{curve[i].x, (sums[end] - sums[begin]) / static_cast<double>(end - begin)};
  };
  Curve means;
  for (size_t i = 0; i + 1 < n; i += stride) means.push_back(mean_at(i));
  if (n) means.push_back(mean_at(n - 1));
  return means;
}

}  // namespace detail

namespace {

namespace json = boost::json;

using namespace detail;

// ---- one step of a profile, limited in size

constexpr size_t max_processes = 8, max_slices = 3000, max_rows = 200;

size_t median_step(const ProcessProfile& profile) {
  std::vector<size_t> order(profile.steps.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto middle = order.begin() + static_cast<ptrdiff_t>((order.size() - 1) / 2);
  std::nth_element(order.begin(), middle, order.end(),
                   [&](size_t a, size_t b) { return profile.steps[a].duration() < profile.steps[b].duration(); });
  return *middle;
}

// Rounds to a tenth of a microsecond.
double rounded_seconds(int64_t nanoseconds) { return 1e-7 * static_cast<double>((nanoseconds + 50) / 100); }

json::array rows_of(const std::vector<ProfileRow>& rows) {
  json::array all;
  for (size_t i = 0; i < std::min(rows.size(), max_rows); ++i)
    all.push_back(json::array{rows[i].name, rows[i].num_calls, rows[i].seconds, rows[i].whole});
  return all;
}

// Stores each text of several processes once.
class Texts {
 public:
  int number_of(const std::string& text) {
    const auto [place, fresh] = numbers_.emplace(text, static_cast<int>(texts_.size()));
    if (fresh) texts_.emplace_back(text);
    return place->second;
  }
  json::array take() { return std::move(texts_); }

 private:
  std::map<std::string, int> numbers_;
  json::array texts_;
};

std::vector<int> depths_of(const std::vector<Slice>& slices) {
  std::vector<int> depths(slices.size());
  for (size_t i = 1; i < slices.size(); ++i) depths[i] = 1 + depths[static_cast<size_t>(slices[i].parent)];
  return depths;
}

// Returns the minimum duration of the slices that the page keeps.
int64_t least_duration(const std::vector<Slice>& slices) {
  if (slices.size() <= max_slices) return 0;
  std::vector<int64_t> durations;
  for (const Slice& s : slices) durations.push_back(s.end - s.begin);
  std::nth_element(durations.begin(), durations.begin() + max_slices, durations.end(), std::greater());
  return durations[max_slices] + 1;
}

int part_number(const Slice& slice) {
  return slice.part == TimePart::computation ? static_cast<int>(slice.pass) : 3 + static_cast<int>(slice.part);
}

json::object step_of(const ProcessProfile& profile, const StepSlices& step, int64_t origin, Texts& texts) {
  json::array slices, transfers;
  const std::vector<int> depths = depths_of(step.slices);
  const int64_t least = least_duration(step.slices);
  for (size_t i = 1; i < step.slices.size(); ++i) {
    const Slice& s = step.slices[i];
    if (s.end - s.begin < least) continue;
    slices.push_back(json::array{rounded_seconds(s.begin - origin), rounded_seconds(s.end - s.begin), depths[i] - 1,
                                 part_number(s), texts.number_of(profile.text(s.name)),
                                 texts.number_of(profile.text(s.module)), texts.number_of(profile.text(s.file)),
                                 s.line});
  }
  for (const Transfer& t : step.transfers)
    transfers.push_back(json::array{rounded_seconds(t.begin - origin), rounded_seconds(t.arrived - t.begin),
                                    rounded_seconds(t.arrived - t.awaited), texts.number_of(profile.text(t.kind)),
                                    texts.number_of(profile.label(t)), texts.number_of(profile.text(t.axes)),
                                    texts.number_of(profile.text(t.path)), t.bytes});
  return {{"process", profile.process},
          {"seconds", rounded_seconds(step.duration())},
          {"slices", std::move(slices)},
          {"transfers", std::move(transfers)}};
}

// Returns the report's data: the tables, and one step of each of the first `max_processes` processes. It is the step
// that has median length on process 0, with its longest slices and all collectives. `begin` is in seconds since that
// step began on process 0; all other times are durations in seconds.
//   "seconds", "steps", "mfu"
//   "parts", "modules", "operations", "lines": rows [name, calls, seconds, whole]
//   "texts": all strings; name, module, file, kind, label, axes and path below are indices in this list
//   "processes": [{"process", "seconds", "slices", "transfers"}]
//     a slice: [begin, seconds, depth, part (an index in "parts"), name, module, file, line]
//     a transfer: [begin, seconds, waited, kind, label, axes, path, bytes]
json::object page_of(const ProfileReport& report) {
  Texts texts;
  json::array processes;
  const std::vector<ProcessProfile>& all = report.processes();
  const size_t number = median_step(all[0]);
  const int64_t origin = all[0].steps[number].slices[0].begin;
  for (size_t p = 0; p < std::min(all.size(), max_processes); ++p)
    if (number < all[p].steps.size())
      processes.push_back(step_of(all[p], all[p].steps[number], origin + all[p].clock_ahead, texts));
  return {{"seconds", report.step_seconds()},
          {"steps", report.steps()},
          {"mfu", report.mfu()},
          {"parts", rows_of(report.by(ProfileBy::part))},
          {"modules", rows_of(report.by(ProfileBy::module))},
          {"operations", rows_of(report.by(ProfileBy::operation))},
          {"lines", rows_of(report.by(ProfileBy::line))},
          {"texts", texts.take()},
          {"processes", std::move(processes)}};
}

// ---- charts

constexpr size_t pixels = 800;  // maximum width of a curve

const char* name_of(ReportSeries::Look look) {
  constexpr const char* names[]{"line", "noisy", "dots"};
  return names[static_cast<int>(look)];
}

double six_digits(double value) {
  if (value == 0) return 0;
  const double scale = std::pow(10, 5 - std::floor(std::log10(std::abs(value))));
  return std::isfinite(scale) ? std::round(value * scale) / scale : value;
}

json::array points_of(const Curve& curve) {
  json::array points;
  for (const CurvePoint& point : curve) points.push_back(json::array{point.x, six_digits(point.y)});
  return points;
}

void check_finite(const ReportChart& chart, const std::string& name, double value) {
  if (std::isfinite(value)) return;
  fail(ErrorKind::invalid_argument, "report",
       "chart \"{}\", \"{}\": {} given, expected finite numbers. Leave such points out.", chart.title, name, value);
}

json::object series_of(const ReportChart& chart, const ReportSeries& series) {
  for (const CurvePoint& point : series.points) {
    check_finite(chart, series.name, point.x);
    check_finite(chart, series.name, point.y);
  }
  const bool noisy = series.look == ReportSeries::Look::noisy;
  return {{"name", series.name},
          {"look", name_of(series.look)},
          {"highlight", series.highlight},
          {"points", points_of(extremes(series.points, pixels))},
          {"mean", noisy ? points_of(centred_means(series.points, pixels)) : json::array{}}};
}

json::object chart_of(const ReportChart& chart) {
  json::array series, levels;
  for (const ReportSeries& s : chart.series) series.push_back(series_of(chart, s));
  for (const ReportLevel& level : chart.levels) {
    check_finite(chart, level.name, level.y);
    levels.push_back({{"name", level.name}, {"y", six_digits(level.y)}});
  }
  return {{"title", chart.title},       {"x", chart.x},     {"y", chart.y},
          {"x_end", chart.x_end},       {"levels", levels}, {"from_zero", chart.from_zero},
          {"series", std::move(series)}};
}

// ---- the data

json::array facts_of(const Report& report) {
  json::array facts;
  for (const auto& [name, value] : report.facts) facts.push_back(json::array{name, value});
  return facts;
}

json::object communication_of(const Report& report) {
  json::array collectives, seconds;
  for (const CommRecord& record : report.collectives) {
    collectives.push_back(tessera::detail::to_object(record));
    seconds.push_back(report.time(record));
  }
  return {{"collectives", std::move(collectives)}, {"seconds", std::move(seconds)}, {"links", report.links}};
}

std::string data_of(const Report& report) {
  json::array charts;
  for (const ReportChart& chart : report.charts) charts.push_back(chart_of(chart));
  return fmt::format(
      R"({{"title":{},"facts":{},"placement":{},"communication":{},"activations":{},"profile":{},"charts":{}}})",
      json::serialize(json::value(report.title)), json::serialize(facts_of(report)),
      report.placement ? report.placement->to_json() : "null", json::serialize(communication_of(report)),
      report.activations ? report.activations->to_json() : "null",
      report.profile ? json::serialize(page_of(*report.profile)) : "null", json::serialize(charts));
}

// Escapes opening brackets in JSON, because a script element ends at the first "</script", even inside a string.
std::string without_brackets(std::string_view data) {
  std::string safe;
  for (const char c : data) {
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  }
  return safe;
}

}  // namespace

std::string Report::to_html() const {
  constexpr std::string_view mark = "{{data}}";
  std::string page(report_page);
  return page.replace(page.find(mark), mark.size(), without_brackets(data_of(*this)));
}

}  // namespace tessera::nn
