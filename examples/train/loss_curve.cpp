// Draws from the back to the front: paper, grid, entropies, losses, and what is written beside them.
#include "examples/train/loss_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

namespace tessera::train {
namespace {

constexpr double width = 880, height = 480;                                      // of the picture
constexpr double left = 52, right = width - 72, top = 92, bottom = height - 52;  // of the plot
constexpr auto pixels = static_cast<size_t>(right - left);

// No variables and no selectors but classes: the plainest of renderers know these.
constexpr std::string_view style = R"(
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; }
.paper { fill: #ffffff; }
.title { font-size: 18px; font-weight: 600; fill: #1f2328; }
.name { fill: #3d444d; }
.note { font-size: 12px; fill: #6a737d; }
.grid { stroke: #e9ecef; }
.axis { stroke: #aab2bb; }
.line { fill: none; stroke-linejoin: round; stroke-linecap: round; }
.steps { stroke: #2563eb; stroke-opacity: 0.28; }
.training { stroke: #2563eb; stroke-width: 2.2; }
.path { stroke: #e8590c; stroke-opacity: 0.45; stroke-width: 1.4; }
.validation { fill: #e8590c; stroke: #ffffff; stroke-width: 1.5; }
.unigram { stroke: #868e96; stroke-width: 1.4; stroke-dasharray: 2 5; }
.bigram { stroke: #2b8a3e; stroke-width: 1.4; stroke-dasharray: 7 5; }
.value { font-weight: 600; }
.of_training { fill: #2563eb; }
.of_validation { fill: #d9480f; }
.of_unigram { fill: #6a737d; }
.of_bigram { fill: #2b8a3e; }
@media (prefers-color-scheme: dark) {
  .paper { fill: #0d1117; }
  .title { fill: #f0f6fc; }
  .name { fill: #d1d7e0; }
  .note { fill: #9198a1; }
  .grid { stroke: #21262d; }
  .axis { stroke: #545d68; }
  .steps { stroke: #58a6ff; stroke-opacity: 0.32; }
  .training { stroke: #58a6ff; }
  .path { stroke: #ff922b; }
  .validation { fill: #ff922b; stroke: #0d1117; }
  .unigram { stroke: #9198a1; }
  .bigram { stroke: #56d364; }
  .of_training { fill: #58a6ff; }
  .of_validation { fill: #ff922b; }
  .of_unigram { fill: #9198a1; }
  .of_bigram { fill: #56d364; }
}
)";

// ---- scales

// The least of 1, 2, 5, 10, 20, ... (or their tenths, ...) of which `range` holds at most `most`.
double round_step(double range, int most) {
  const double least = range / most, power = std::pow(10, std::floor(std::log10(least)));
  for (const double digit : {1, 2, 5})
    if (digit * power >= least * (1 - 1e-9)) return digit * power;
  return 10 * power;
}

struct Scale {
  double from = 0, to = 1;    // values
  double begin = 0, end = 1;  // where they lie in the picture
  double tick = 1;

  double operator()(double value) const { return begin + (value - from) / (to - from) * (end - begin); }

  // At most 100, of some 10 that are drawn: losses of 1e300 make no sensible scale.
  std::vector<double> ticks() const {
    std::vector<double> values;
    const double first = std::ceil(from / tick - 1e-6);
    for (int i = 0; i < 100 && (first + i) * tick <= to + 1e-6 * tick; ++i) values.push_back((first + i) * tick);
    return values;
  }
};

Scale scale_of_steps(const LossCurve& curve) {
  const double steps = std::max<double>(1, static_cast<double>(curve.steps));
  return {0, steps, left, right, std::max(1.0, round_step(steps, 10))};
}

// From a round loss below all that is drawn to one above.
Scale scale_of_losses(const LossCurve& curve) {
  double least = std::min(curve.unigram_entropy, curve.bigram_entropy);
  double most = std::max(curve.unigram_entropy, curve.bigram_entropy);
  for (const auto* points : {&curve.training, &curve.validation})
    for (const LossPoint& point : *points) {
      least = std::min(least, point.loss);
      most = std::max(most, point.loss);
    }
  const double tick = round_step(std::max(most - least, 0.01), 7);
  const double from = std::floor(least / tick - 0.1) * tick, to = std::ceil(most / tick + 0.1) * tick;
  return {from, to, bottom, top, tick};
}

struct Plot {
  Scale x, y;

  std::string point(const nn::CurvePoint& p) const { return fmt::format("{:.1f},{:.1f}", x(p.x), y(p.y)); }
};

// ---- curves

std::string polyline(const Plot& plot, const char* kind, const nn::Curve& points) {
  if (points.empty()) return "";
  std::string text = fmt::format("<polyline class=\"line {}\" points=\"", kind);
  for (const nn::CurvePoint& point : points) text += plot.point(point) + ' ';
  return text + plot.point(points.back()) + "\"/>\n";  // again: a line to itself makes a single point a dot
}

std::string dots(const Plot& plot, const std::vector<LossPoint>& points) {
  std::string text;
  for (const LossPoint& p : points)
    text += fmt::format(
        "<circle class=\"validation\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\"><title>validation loss {:.3f} after {} "
        "steps</title></circle>\n",
        plot.x(static_cast<double>(p.step)), plot.y(p.loss), p.loss, p.step);
  return text;
}

std::string line(const char* kind, double x1, double y1, double x2, double y2) {
  return fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", kind, x1, y1, x2,
                     y2);
}

std::string level(const Plot& plot, const char* kind, double loss) {
  return line(fmt::format("line {}", kind).c_str(), left, plot.y(loss), right, plot.y(loss));
}

// ---- words

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&')
      safe += "&amp;";
    else if (c == '<')
      safe += "&lt;";
    else if (c == '>')
      safe += "&gt;";
    else if (static_cast<unsigned char>(c) >= 0x20)
      safe += c;
  }
  return safe;
}

std::string words(const char* kind, const char* anchor, double x, double y, std::string_view text) {
  return fmt::format("<text class=\"{}\" text-anchor=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", kind, anchor, x, y,
                     escaped(text));
}

// 500, 20k, 1.5M
std::string short_number(double value) {
  if (value >= 1e6) return fmt::format("{:.6g}M", value / 1e6);
  return value >= 1e4 ? fmt::format("{:.6g}k", value / 1e3) : fmt::format("{:.6g}", value);
}

std::string axes(const Plot& plot) {
  std::string text;
  for (const double loss : plot.y.ticks()) {
    text += line("grid", left, plot.y(loss), right, plot.y(loss));
    text += words("note", "end", left - 9, plot.y(loss) + 4, fmt::format("{:.6g}", loss));
  }
  text += line("axis", left, bottom, right, bottom);
  for (const double step : plot.x.ticks()) {
    text += line("axis", plot.x(step), bottom, plot.x(step), bottom + 5);
    text += words("note", "middle", plot.x(step), bottom + 20, short_number(step));
  }
  return text + words("note", "start", left, top - 12, "loss, nats per byte") +
         words("note", "middle", (left + right) / 2, bottom + 40, "step");
}

// A swatch is drawn from (0, 0) to (26, 0), with its name behind it.
struct LegendEntry {
  const char *name, *swatch;
  double x;
};

constexpr LegendEntry legend_entries[] = {
    {"training", R"(<path class="line steps" stroke-width="7" d="M0 0h26"/><path class="line training" d="M0 0h26"/>)",
     right - 520},
    {"validation", R"(<path class="line path" d="M0 0h26"/><circle class="validation" cx="13" r="5"/>)", right - 410},
    {"unigram entropy", R"(<path class="line unigram" d="M0 0h26"/>)", right - 290},
    {"bigram entropy", R"(<path class="line bigram" d="M0 0h26"/>)", right - 132}};

std::string legend() {
  std::string text = "<g class=\"legend\">\n";
  for (const auto& [name, swatch, x] : legend_entries)
    text += fmt::format("<g transform=\"translate({:.0f} 28.5)\">{}</g>\n", x, swatch) +
            words("name", "start", x + 34, 33, name);
  return text + "</g>\n";
}

struct Value {
  const char* kind;
  double loss, y;
};

// The last values, at the right end of their lines; those that would overlap move apart.
std::string last_values(const LossCurve& curve, const nn::Curve& means, const Plot& plot) {
  constexpr double apart = 17;
  std::vector<Value> values = {{"value of_unigram", curve.unigram_entropy, plot.y(curve.unigram_entropy)},
                               {"value of_bigram", curve.bigram_entropy, plot.y(curve.bigram_entropy)}};
  const auto add_last = [&](const char* kind, const nn::Curve& points) {
    if (!points.empty()) values.push_back({kind, points.back().y, plot.y(points.back().y)});
  };
  add_last("value of_training", means);
  add_last("value of_validation", curve_of(curve.validation));
  std::sort(values.begin(), values.end(), [](const Value& a, const Value& b) { return a.y < b.y; });
  for (size_t i = 1; i < values.size(); ++i) values[i].y = std::max(values[i].y, values[i - 1].y + apart);
  double lowest = bottom - 4;  // what was pushed below the plot pushes back
  for (auto value = values.rbegin(); value != values.rend(); ++value, lowest -= apart)
    value->y = std::min(value->y, lowest);
  std::string text;
  for (const Value& value : values)
    text += words(value.kind, "start", right + 14, value.y + 4.5, fmt::format("{:.3f}", value.loss));
  return text;
}

std::string in_words(const LossCurve& curve) {
  std::string text = fmt::format("Loss in nats per byte over {} steps; entropy: unigram {:.3f}, bigram {:.3f}",
                                 curve.steps, curve.unigram_entropy, curve.bigram_entropy);
  if (!curve.training.empty())
    text += fmt::format("; training from {:.3f} to {:.3f}", curve.training.front().loss, curve.training.back().loss);
  if (!curve.validation.empty()) text += fmt::format("; validation {:.3f}", curve.validation.back().loss);
  return text + ".";
}

}  // namespace

nn::Curve curve_of(const std::vector<LossPoint>& points) {
  nn::Curve curve;
  for (const LossPoint& point : points) curve.push_back({static_cast<double>(point.step), point.loss});
  return curve;
}

std::string LossCurve::svg() const {
  const Plot plot{scale_of_steps(*this), scale_of_losses(*this)};
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\">\n"
      "<title>Training and validation loss</title>\n<desc>{2}</desc>\n<style>{3}</style>\n"
      "<rect class=\"paper\" width=\"{0}\" height=\"{1}\" rx=\"10\"/>\n",
      width, height, escaped(in_words(*this)), style);
  text += words("title", "start", 20, 34, "Loss") + words("note", "start", 20, 54, caption) + legend();
  text += axes(plot) + level(plot, "unigram", unigram_entropy) + level(plot, "bigram", bigram_entropy);
  const nn::Curve losses = curve_of(training), means = nn::centred_means(losses, pixels);
  text += polyline(plot, "steps", nn::extremes(losses, 2 * pixels)) + polyline(plot, "path", curve_of(validation));
  text += polyline(plot, "training", means) + dots(plot, validation);
  return text + last_values(*this, means, plot) + "</svg>\n";
}

}  // namespace tessera::train
