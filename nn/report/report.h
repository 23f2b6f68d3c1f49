// Report: the placement of a model, the communication of a step and the curves of a training run as one HTML page.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nn/placement/table.h"
#include "nn/report/activations.h"
#include "nn/report/profile.h"
#include "sharding/accounting/ledger.h"

namespace tessera::nn {

struct CurvePoint {
  double x = 0, y = 0;
  friend bool operator==(const CurvePoint&, const CurvePoint&) = default;
};
using Curve = std::vector<CurvePoint>;  // in the order of x

// A line of a chart.
struct ReportSeries {
  // noisy: faint, with its centered mean in front; dots: the points themselves, faintly connected.
  enum class Look { line, noisy, dots };

  std::string name;
  Curve points;  // finite numbers
  Look look = Look::line;
  bool highlight = false;  // shows its last value among the main figures at the top
};

// A horizontal line.
struct ReportLevel {
  std::string name;
  double y = 0;
};

struct ReportChart {
  std::string title;  // Loss
  std::string x, y;   // labels of the axes, in the singular: "step", "nats per byte"
  std::vector<ReportSeries> series;
  std::vector<ReportLevel> levels = {};
  bool from_zero = false;  // true: the y axis begins at 0; false: below the minimum
  double x_end = 0;        // end of the x axis, if beyond the last point: the last step of a run
};

// Contents of a page; empty parts are omitted.
//   nn::Report report{.title = "Two layers", .facts = {{"mesh", mesh_rules.mesh().to_string()}}};
//   report.placement = nn::placement_table(model);
//   {
//     CommLedger ledger;
//     step(model, batch);
//     report.collectives = ledger.records();
//   }
//   std::ofstream("report.html") << report.to_html();
struct Report {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts = {};  // below the title: {"mesh", "data=4, model=2"}
  std::optional<PlacementTable> placement = {};
  std::vector<CommRecord> collectives = {};         // CommLedger::records() of one step
  CommTime time = ring_time(100e9);                 // the duration of a collective as drawn
  std::string links = "a link carries 100 GB/s";    // the same as text, printed after "where"
  std::optional<ActivationTable> activations = {};  // result of nn::activation_summary
  std::optional<ProfileReport> profile = {};        // Profile::report() or gather() of some steps
  std::vector<ReportChart> charts = {};

  // Returns the page. It shows
  //   a treemap of the arrays on each device
  //   the collectives, as a timeline and by source line
  //   the arrays that each module keeps for the backward pass
  //   a measured step as a timeline
  //   the charts
  // The page follows the viewer's light or dark scheme, and fits phones and wide screens. You can read it by keyboard
  // and as tables. It needs no network and no other file. The element "data" has its data as JSON: {"title", "facts",
  // "placement": PlacementTable::to_json() or null, "communication": {"collectives": as in CommLedger::to_json(),
  // "seconds", "links"}, "activations": ActivationTable::to_json() or null, "profile" or null, "charts"}. Each array
  // and collective takes about 450 bytes. A line keeps at most 1,600 points, thinned to its extremes (`extremes`).
  // Texts are shown literally, never as markup. Error (invalid_argument): a chart with a number that is not finite.
  std::string to_html() const;
};

namespace detail {

// Thins a curve of more than twice `most` points: splits it into `most` runs and keeps the smallest and the largest
// point of each, so that no peak is lost. Returns a shorter curve unchanged.
Curve extremes(const Curve& curve, size_t most);

// Returns the centered moving mean over a twentieth of the points, at about `most` of them, including the last. At the
// steep start, the window is narrower before and after the point, so that the mean does not lag. At the end, only the
// later half of the window is cut off.
Curve centred_means(const Curve& curve, size_t most);

}  // namespace detail
}  // namespace tessera::nn
