// Report: the placement of a model, the communication of a step and the curves of a training as one HTML page.
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

// Cuts a curve of more than twice `most` points into `most` runs and keeps the least and the largest point of each, so
// that no peak is lost. A shorter curve is returned as it is.
Curve extremes(const Curve& curve, size_t most);

// The centred moving mean over a twentieth of the points, at about `most` of them, the last among them. At the steep
// start the window is narrower on both sides, so that the mean does not lag; at the end only its later side is cut off.
Curve centred_means(const Curve& curve, size_t most);

// A line of a chart.
struct ReportSeries {
  // noisy: faint, with its centred mean in front; dots: the points themselves, joined faintly.
  enum class Look { line, noisy, dots };

  std::string name;
  Curve points;  // finite numbers
  Look look = Look::line;
  bool highlight = false;  // show its last value among the main figures at the top
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
  bool from_zero = false;  // whether the y axis begins at 0; else below the least value
  double x_end = 0;        // where the x axis ends, if beyond the last point: the last step of a run
};

// The contents of a page; empty parts are left out.
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
  std::vector<CommRecord> collectives = {};         // of one step: CommLedger::records()
  CommTime time = ring_time(100e9);                 // the duration of a collective as drawn
  std::string links = "a link carries 100 GB/s";    // the same in words, printed after "where"
  std::optional<ActivationTable> activations = {};  // of nn::activation_summary
  std::optional<ProfileReport> profile = {};        // of some steps: Profile::report() or gather()
  std::vector<ReportChart> charts = {};

  // The page: a treemap of the arrays on each device; the collectives as a timeline and by line of the program; what
  // each module keeps for the backward pass; a measured step as a timeline; the charts. It follows the viewer's light
  // or dark scheme, fits phones and wide screens, can be read by keyboard and as tables, and needs neither a network
  // nor any other file. The element "data" has its data as JSON: {"title", "facts", "placement":
  // PlacementTable::to_json() or null, "communication": {"collectives": as in CommLedger::to_json(), "seconds",
  // "links"}, "activations": ActivationTable::to_json() or null, "profile" or null, "charts"}. Each array and
  // collective takes about 450 bytes; a line keeps at most 1,600 points, thinned to its extremes
  // (`extremes`). Texts are shown literally, never as markup. Error (invalid_argument): a chart with a
  // number that is not finite.
  std::string to_html() const;
};

}  // namespace tessera::nn
