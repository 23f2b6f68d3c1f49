// Writes the report's data as JSON into the page that the build puts together from nn/report/.
#include "nn/report/report.h"

#include <fmt/format.h>

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <string_view>

#include "nn/report/profile_page.h"
#include "nn/report/report_page.h"
#include "sharding/accounting/ledger_json.h"
#include "sharding/base/fail.h"

namespace tessera::nn {
namespace {

namespace json = boost::json;

constexpr size_t pixels = 800;  // that a curve is wide at most

const char* name_of(ReportSeries::Look look) {
  constexpr const char* names[]{"line", "noisy", "dots"};
  return names[static_cast<int>(look)];
}

// ---- charts

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
      report.profile ? json::serialize(detail::page_of(*report.profile)) : "null", json::serialize(charts));
}

// A script element ends at the first "</script", even inside a string: JSON can spell the bracket otherwise.
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
  std::string page(detail::report_page);
  return page.replace(page.find(mark), mark.size(), without_brackets(data_of(*this)));
}

}  // namespace tessera::nn
