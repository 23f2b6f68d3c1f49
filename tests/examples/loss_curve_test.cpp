// The loss curve: a whole picture at every moment of a run, whose points lie where its axes say.
#include "examples/train/loss_curve.h"

#include <gtest/gtest.h>

#include <cmath>
#include <regex>
#include <sstream>

namespace tessera::train::loss_curve_test {
namespace {

LossCurve curve_of(int64_t steps, int64_t done, int64_t validate_every) {
  LossCurve curve{
      .caption = "mesh data=4 & model=2 <8 devices>", .steps = steps, .unigram_entropy = 3.6, .bigram_entropy = 2.6};
  for (int64_t step = 1; step <= done; ++step) {
    const double loss = 1.2 + 4.3 * std::exp(-10.0 * static_cast<double>(step) / static_cast<double>(steps));
    curve.training.push_back({step, loss + 0.1 * static_cast<double>(step % 3)});
    if (step % validate_every == 0) curve.validation.push_back({step, loss + 0.5});
  }
  return curve;
}

// ---- an SVG, taken apart

// The curves without their points, of which std::regex would take too many at once.
std::string without_points(std::string svg) {
  for (size_t at = 0; (at = svg.find(" points=\"", at)) != std::string::npos; at += 10)
    svg.erase(at + 9, svg.find('"', at + 9) - (at + 9));
  return svg;
}

// What matched, and its groups.
std::vector<std::vector<std::string>> matches(const std::string& svg, const std::string& pattern) {
  const std::string text = without_points(svg);
  const std::regex regex(pattern);
  std::vector<std::vector<std::string>> found;
  for (std::sregex_iterator match(text.begin(), text.end(), regex), end; match != end; ++match)
    found.emplace_back(match->begin(), match->end());
  return found;
}

// Every tag is closed by its like, nothing is left open, no stray & or <.
void expect_well_formed(const std::string& svg) {
  std::vector<std::string> open;
  for (const auto& tag : matches(svg, "<(/?)([a-z]+)((?:\\s+[a-zA-Z0-9:-]+=\"[^\"<&]*\")*)\\s*(/?)>")) {
    if (!tag[1].empty()) {
      ASSERT_FALSE(open.empty());
      ASSERT_EQ(open.back(), tag[2]);
      open.pop_back();
    } else if (tag[4].empty()) {
      open.push_back(tag[2]);
    }
  }
  EXPECT_TRUE(open.empty());
  const std::string text = std::regex_replace(without_points(svg), std::regex("<[^<>]*>|&(?:amp|lt|gt);"), "");
  EXPECT_EQ(text.find_first_of("<>&"), std::string::npos);
}

struct Point {
  double x = 0, y = 0;
};

std::vector<Point> points_of(const std::string& svg, const std::string& kind) {
  const std::string begin = "<polyline class=\"line " + kind + "\" points=\"";
  const size_t found = svg.find(begin);
  if (found == std::string::npos) return {};
  std::vector<Point> points;
  std::istringstream in(svg.substr(found + begin.size()));
  char comma;
  for (Point p; in >> p.x >> comma >> p.y;) points.push_back(p);
  return points;
}

std::vector<Point> dots_of(const std::string& svg) {
  std::vector<Point> dots;
  for (const auto& dot : matches(svg, "<circle class=\"validation\" cx=\"([0-9.]+)\" cy=\"([0-9.]+)\""))
    dots.push_back({std::stod(dot[1]), std::stod(dot[2])});
  return dots;
}

// The affine map from a place in the picture to a value, as its ticks tell it; every tick must agree.
struct Axis {
  double slope = 0, offset = 0;
  double operator()(double place) const { return offset + slope * place; }
};

Axis axis_of(const std::vector<std::pair<double, double>>& ticks) {  // place, value
  EXPECT_GE(ticks.size(), 2u);
  const auto [p0, v0] = ticks.front();
  const auto [p1, v1] = ticks.back();
  const Axis axis{(v1 - v0) / (p1 - p0), v0 - p0 * (v1 - v0) / (p1 - p0)};
  for (const auto& [place, value] : ticks) EXPECT_NEAR(axis(place), value, 1e-3 * std::abs(v1 - v0));
  return axis;
}

double number_of(const std::string& text) {
  return std::stod(text) * (text.ends_with("k") ? 1e3 : text.ends_with("M") ? 1e6 : 1);
}

// A tick is a line with its number right after it.
Axis x_axis(const std::string& svg) {
  std::vector<std::pair<double, double>> ticks;
  for (const auto& tick :
       matches(svg,
               "<line class=\"axis\" x1=\"([0-9.]+)\"[^>]*/>\n<text class=\"note\" text-anchor=\"middle\"[^>]*>"
               "([0-9.kM]+)</text>"))
    ticks.push_back({std::stod(tick[1]), number_of(tick[2])});
  return axis_of(ticks);
}

Axis y_axis(const std::string& svg) {
  std::vector<std::pair<double, double>> ticks;
  for (const auto& tick : matches(svg, "<line class=\"grid\"[^>]* y2=\"([0-9.]+)\"/>\n<text[^>]*>(-?[0-9.]+)</text>"))
    ticks.push_back({std::stod(tick[1]), std::stod(tick[2])});
  return axis_of(ticks);
}

double level_of(const std::string& svg, const std::string& kind) {
  const auto lines = matches(svg, "<line class=\"line " + kind + "\"[^>]* y1=\"([0-9.]+)\"[^>]* y2=\"([0-9.]+)\"");
  EXPECT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines.at(0)[1], lines.at(0)[2]);
  return std::stod(lines.at(0)[1]);
}

// ---- what it must show

TEST(LossCurve, LiesWhereItsAxesSay) {
  const LossCurve curve = curve_of(500, 500, 100);
  const std::string svg = curve.svg();
  const Axis x = x_axis(svg), y = y_axis(svg);
  const auto expect_at = [&](const Point& p, const LossPoint& expected) {
    EXPECT_NEAR(x(p.x), static_cast<double>(expected.step), 0.1);
    EXPECT_NEAR(y(p.y), expected.loss, 0.01);
  };
  const std::vector<Point> training = points_of(svg, "steps"), dots = dots_of(svg);
  ASSERT_GE(training.size(), curve.training.size());
  for (size_t i = 0; i < curve.training.size(); ++i) expect_at(training[i], curve.training[i]);
  ASSERT_EQ(dots.size(), curve.validation.size());
  for (size_t i = 0; i < dots.size(); ++i) expect_at(dots[i], curve.validation[i]);
  EXPECT_NEAR(y(level_of(svg, "unigram")), 3.6, 0.01);
  EXPECT_NEAR(y(level_of(svg, "bigram")), 2.6, 0.01);
}

TEST(LossCurve, TheMeanSmoothsAndDoesNotLag) {
  const LossCurve curve = curve_of(500, 500, 100);
  const std::string svg = curve.svg();
  const Axis y = y_axis(svg);
  const std::vector<Point> mean = points_of(svg, "training");
  EXPECT_NEAR(y(mean.front().y), curve.training.front().loss, 0.01);
  for (size_t i = 100; i < 500; ++i)
    EXPECT_NEAR(y(mean[i].y), curve.training[i].loss - 0.1 * ((i + 1) % 3) + 0.1, 0.03);
}

TEST(LossCurve, IsWellFormedAndSelfContainedAtEveryMoment) {
  const std::pair<int64_t, int64_t> moments[] = {{500, 0}, {500, 1}, {500, 137}, {500, 500}, {1, 0}, {1, 1}, {3, 3}};
  for (const auto& [steps, done] : moments) {
    SCOPED_TRACE(::testing::Message() << done << " of " << steps);
    const std::string svg = curve_of(steps, done, 100).svg();
    expect_well_formed(svg);
    EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
    EXPECT_EQ(matches(svg, "https?://|href|url\\(|@import").size(), 1u) << "the namespace only";
    EXPECT_EQ(matches(svg, "\\b(nan|inf)\\b").size(), 0u);
    for (const char* words :
         {"mesh data=4 &amp; model=2 &lt;8 devices&gt;", ">training<", ">validation<", ">unigram entropy<",
          ">bigram entropy<", ">step<", ">loss, nats per byte<", "prefers-color-scheme: dark"})
      EXPECT_NE(svg.find(words), std::string::npos) << words;
    EXPECT_EQ(points_of(svg, "steps").empty(), done == 0);
  }
}

TEST(LossCurve, NamesTheLastValues) {
  const LossCurve curve = curve_of(500, 500, 100);
  const std::string svg = curve.svg();
  const auto shown = [&](const std::string& kind) {
    const auto texts = matches(svg, "<text class=\"value of_" + kind + "\"[^>]* y=\"([0-9.]+)\">([0-9.]+)</text>");
    EXPECT_EQ(texts.size(), 1u) << kind;
    return std::pair{std::stod(texts.at(0)[1]), std::stod(texts.at(0)[2])};
  };
  EXPECT_NEAR(shown("training").second, 1.3, 0.01) << "1.2, 1.3, 1.4, in turns";
  EXPECT_NEAR(shown("validation").second, curve.validation.back().loss, 5e-4);
  EXPECT_EQ(shown("unigram").second, 3.6);
  EXPECT_EQ(shown("bigram").second, 2.6);
}

TEST(LossCurve, ValuesNeverOverlap) {
  LossCurve curve = curve_of(10, 10, 5);
  curve.unigram_entropy = curve.bigram_entropy = curve.validation.back().loss = curve.training.back().loss;
  std::vector<double> y;
  for (const auto& text : matches(curve.svg(), "<text class=\"value [^>]* y=\"([0-9.]+)\""))
    y.push_back(std::stod(text[1]));
  ASSERT_EQ(y.size(), 4u);
  for (size_t i = 1; i < 4; ++i) EXPECT_GE(y[i] - y[i - 1], 16) << "13 pixels high";
  EXPECT_LT(y.back(), 432) << "above the names of the steps";
}

TEST(LossCurve, ALossThatNeverMovesIsDrawnToo) {
  LossCurve curve{.caption = "", .steps = 2, .unigram_entropy = 0, .bigram_entropy = 0};
  for (int64_t step = 1; step <= 2; ++step) curve.training.push_back({step, 0});
  const std::string svg = curve.svg();
  expect_well_formed(svg);
  EXPECT_NEAR(y_axis(svg)(level_of(svg, "bigram")), 0, 1e-4);
}

TEST(LossCurve, LossesOfAnySizeAreDrawnInTime) {
  for (const double loss : {1e308, -1e308, 1e17})
    for (const double other : {loss, -loss, 2.0})
      EXPECT_LT((LossCurve{.caption = "a run", .steps = 2, .training = {{1, loss}, {2, other}}}.svg().size()),
                100'000u);
}

TEST(LossCurve, ALongRunStaysSmallAndKeepsItsSpikes) {
  LossCurve curve = curve_of(200000, 200000, 40000);
  curve.training[123456].loss = 9;
  const std::string svg = curve.svg();
  EXPECT_LT(svg.size(), 100000u);
  const Axis y = y_axis(svg);
  double most = 0, last_x = 0;
  for (const Point& p : points_of(svg, "steps")) {
    most = std::max(most, y(p.y));
    EXPECT_GE(p.x, last_x);
    last_x = p.x;
  }
  EXPECT_NEAR(most, 9, 0.01);
}

}  // namespace
}  // namespace tessera::train::loss_curve_test
