// Report: where a model lies, what a step communicates and how a training went, as one HTML page.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nn/placement/table.h"
#include "nn/report/downsampling.h"
#include "sharding/accounting/ledger.h"

namespace tessera::nn {

// A line of a chart.
struct ReportSeries {
  // noisy: faint, with its centred mean in front; dots: the points themselves, joined faintly.
  enum class Look { line, noisy, dots };

  std::string name;
  Curve points;  // finite numbers
  Look look = Look::line;
  bool highlight = false;  // its last value stands among the main figures at the top
};

// A horizontal line.
struct ReportLevel {
  std::string name;
  double y = 0;
};

struct ReportChart {
  std::string title;  // Loss
  std::string x, y;   // what the axes count, in the singular, and its unit: "step", "nats per byte"
  std::vector<ReportSeries> series;
  std::vector<ReportLevel> levels = {};
  bool from_zero = false;  // the y axis; else it begins below the least value
  double x_end = 0;        // where the x axis ends, if not at the last point: of a training, its last step
};

// What a page shows; a part that is empty is left out.
//   nn::Report report{.title = "Two layers", .facts = {{"mesh", layout.mesh().to_string()}}};
//   report.placement = nn::placement_table(model);
//   {
//     CommLedger ledger;
//     step(model, batch);
//     report.collectives = ledger.records();
//   }
//   std::ofstream("report.html") << report.html();
struct Report {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts = {};  // below the title: {"mesh", "data=4, model=2"}
  std::optional<PlacementTable> placement = {};
  std::vector<CommRecord> collectives = {};       // of one step: CommLedger::records()
  CommTime time = ring_time(100e9);               // how long a collective is drawn
  std::string links = "a link carries 100 GB/s";  // the same in words, after "where"
  std::vector<ReportChart> charts = {};

  // The page: of each device a treemap of the arrays it holds; the collectives as a timeline and by the line of the
  // program; the charts. It follows the viewer's light or dark scheme, fits phones and wide screens, can be read by
  // keyboard and in tables, and needs neither a network nor any other file. Its data stand in it as JSON, in the
  // element "data": {"title", "facts", "placement": PlacementTable::to_json() or null, "communication": {"collectives":
  // as in CommLedger::to_json(), "seconds", "links"}, "charts"}. Some 450 bytes for each array and collective; a line
  // keeps at most 1,600 points, thinned to its extremes (nn/report/downsampling.h). What texts say is shown as it is,
  // never as markup. Error (bad_argument): a chart of a number that is not finite.
  std::string html() const;
};

}  // namespace tessera::nn
