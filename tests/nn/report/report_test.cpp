// Report: the data embedded in its page, whatever its texts contain, and curves with fewer points.
#include "nn/report/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <boost/json/value_to.hpp>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "nn/layers/mlp.h"
#include "nn/placement/explain.h"
#include "nn/placement/filter_shard.h"
#include "nn/report/activations.h"
#include "nn/report/compare_meshes.h"
#include "nn/report/profile.h"
#include "nn/report/suggest_strategies.h"
#include "sharding/redistribution/device_put.h"
#include "tests/nn/support.h"

namespace tessera::nn::report_test {
namespace {

using detail::centred_means, detail::extremes;

namespace json = boost::json;
using testing::expect_error;

// rows() of a temporary must return the rows by value: for (const auto& row : activation_summary(...).rows()) would
// otherwise read freed memory.
template <class... Rows>
constexpr bool own_their_rows = !(std::is_reference_v<Rows> || ...);
static_assert(own_their_rows<
              decltype(std::declval<ActivationTable>().rows()), decltype(std::declval<ActivationTable>().whole()),
              decltype(std::declval<Explanation>().arrays()), decltype(std::declval<Explanation>().idle_rules()),
              decltype(std::declval<StrategySuggestions>().strategies()),
              decltype(std::declval<StrategySuggestions>().too_large()),
              decltype(std::declval<StrategySuggestions>().failed()), decltype(std::declval<MeshComparison>().steps()),
              decltype(std::declval<PlacementTable>().rows()), decltype(std::declval<ProfileReport>().processes())>);

json::value data_of(const std::string& page) {
  const std::string open = R"(<script type="application/json" id="data">)";
  const size_t begin = page.find(open) + open.size();
  return json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

Mlp placed_mlp() {
  const MeshRules mesh_rules(make_mesh({{"data", 4}, {"model", 2}}), {{"hidden", "model"}, {"embed", "data"}});
  return filter_shard(Mlp::init(Key(0), {"embed", 8}, {"hidden", 16}), mesh_rules);
}

TEST(Report, EmbedsTheTableAndTheLedgerAsTheyAre) {
  const Mlp model = placed_mlp();
  const PlacementTable table = placement_table(model);
  const CommLedger ledger;
  reshard(model.up.kernel.value, P());
  ASSERT_GT(ledger.count(), 0);
  const json::value data = data_of(
      Report{.title = "a", .placement = table, .collectives = ledger.records(), .links = "links are quick"}.to_html());
  EXPECT_EQ(data.at("placement"), json::parse(table.to_json()));
  EXPECT_EQ(data.at("communication").at("collectives"), json::parse(ledger.to_json()).at("collectives"));
  const json::array& seconds = data.at("communication").at("seconds").as_array();
  ASSERT_EQ(seconds.size(), ledger.records().size());
  for (size_t i = 0; i < seconds.size(); ++i)
    EXPECT_EQ(seconds[i].to_number<double>(), ring_time(100e9)(ledger.records()[i]));
  EXPECT_EQ(data.at("communication").at("links"), json::value("links are quick"));
}

TEST(Report, TextsAreNeverMarkup) {
  const std::string hostile = "</script><script>alert(\"1\")</script><!-- {{data}} & 'x' \\ \n";
  const std::string plain = Report{.title = "a"}.to_html();
  const std::string page = Report{.title = hostile,
                                  .facts = {{hostile, hostile}},
                                  .placement = PlacementTable({{.path = hostile, .spec = hostile}}),
                                  .collectives = {{.operation = hostile, .path = hostile, .reason = hostile}},
                                  .links = hostile,
                                  .charts = {{.title = hostile, .series = {{hostile, {{1, 2}}}}}}}
                               .to_html();
  const auto brackets = [](const std::string& text) { return std::count(text.begin(), text.end(), '<'); };
  EXPECT_EQ(brackets(page), brackets(plain));
  const json::value data = data_of(page);
  EXPECT_EQ(data.at("title"), json::value(hostile));
  EXPECT_EQ(data.at("facts").at(0).at(1), json::value(hostile));
  EXPECT_EQ(data.at("placement").at("rows").at(0).at("path"), json::value(hostile));
  EXPECT_EQ(data.at("communication").at("collectives").at(0).at("reason"), json::value(hostile));
  EXPECT_EQ(data.at("charts").at(0).at("series").at(0).at("name"), json::value(hostile));
}

TEST(Report, NeedsNothingButItself) {
  const std::string page = Report{.title = "a"}.to_html();
  EXPECT_TRUE(data_of(page).at("placement").is_null());
  for (const char* word : {"http:", "https:", "//www", "@import", "url(", "{{"})
    EXPECT_EQ(page.find(word), std::string::npos) << word;
}

TEST(Report, ALongTrainingIsThinnedToItsExtremes) {
  Curve noise;
  for (int i = 0; i < 1'000'000; ++i) noise.push_back({static_cast<double>(i), std::sin(i * 0.7) / (1 + i * 1e-4)});
  noise[765'432].y = 9;
  noise[123'456].y = -9;
  const std::string page =
      Report{.title = "a", .charts = {{.series = {{"loss", noise, ReportSeries::Look::noisy}}}}}.to_html();
  EXPECT_LT(page.size(), 200'000u);
  const json::value series = data_of(page).at("charts").at(0).at("series").at(0);
  const json::array& points = series.at("points").as_array();
  EXPECT_LE(points.size(), 1600u);
  for (const json::value& peak : {json::value{765432.0, 9.0}, json::value{123456.0, -9.0}})
    EXPECT_NE(std::find(points.begin(), points.end(), peak), points.end());
  EXPECT_LE(series.at("mean").as_array().size(), 802u);
}

TEST(Report, OnlyFiniteNumbersAreDrawn) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  expect_error(
      ErrorKind::invalid_argument,
      "[report] chart \"Loss\", \"training\": inf given, expected finite numbers. Leave such points out.",
      [&] { Report{.title = "a", .charts = {{.title = "Loss", .series = {{"training", {{1, inf}}}}}}}.to_html(); });
  expect_error(ErrorKind::invalid_argument,
               "[report] chart \"Loss\", \"entropy\": nan given, expected finite numbers. Leave such points out.",
               [&] { Report{.title = "a", .charts = {{.title = "Loss", .levels = {{"entropy", nan}}}}}.to_html(); });
}

// ---- curves

Curve steps(size_t n) {
  Curve curve;
  for (size_t i = 0; i < n; ++i) curve.push_back({static_cast<double>(i), static_cast<double>(i * i % 7)});
  return curve;
}

TEST(Curves, ShortOnesStayAsTheyAre) {
  EXPECT_EQ(extremes({}, 10), Curve{});
  EXPECT_EQ(extremes(steps(20), 10), steps(20));
  EXPECT_EQ(centred_means({}, 10), Curve{});
  EXPECT_EQ(centred_means(steps(9), 10), steps(9)) << "a twentieth of nine points is none: each is its own mean";
}

TEST(Curves, EveryRunKeepsItsLeastAndItsLargest) {
  EXPECT_EQ(extremes({{0, 1}, {1, 5}, {2, 2}, {3, 3}, {4, 9}, {5, 0}}, 2), (Curve{{0, 1}, {1, 5}, {4, 9}, {5, 0}}));
}

TEST(Curves, MeansOfALineAreTheLine) {
  Curve line;
  for (int i = 0; i < 1000; ++i) line.push_back({i + 1.0, 3.0 * i});
  Curve means = centred_means(line, 100);
  EXPECT_EQ(means.back().x, 1000);
  std::erase_if(means, [](const CurvePoint& point) { return point.x > 970; });  // the window is truncated there
  for (const CurvePoint& point : means) EXPECT_NEAR(point.y, 3 * (point.x - 1), 1e-9) << point.x;
}

}  // namespace
}  // namespace tessera::nn::report_test
