// Forecasts a step on several meshes, and prints the forecasts as one table.
#include "nn/report/compare_meshes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "sharding/base/fail.h"
#include "sharding/base/table.h"
#include "sharding/placement/mesh_impl.h"

namespace tessera::nn {

using tessera::detail::Table;
using tessera::detail::with_commas;

namespace {

// ---- the table

using Lines = std::vector<std::pair<std::string, std::string>>;  // titles, and the cells of one mesh

// Returns the lines of one mesh in four sections: memory at rest, peaks, collectives, times.
std::array<Lines, 4> sections_of(const StepForecast& s) {
  if (!s.error.empty()) return {};
  const auto ms = [](double seconds) { return fmt::format("{:.4g}", seconds * 1e3); };
  Lines at_rest, traffic,
      times{{"operations", fmt::format("{:.4g}", s.flops)},
            {"compute, ms", ms(s.compute_seconds)},
            {"communication, ms", ms(s.communication_seconds)}};
  for (const auto& [name, bytes] : s.at_rest) at_rest.emplace_back(name + ", bytes", with_commas(bytes));
  if (s.host_bytes > 0) at_rest.emplace_back("in pinned host memory, bytes", with_commas(s.host_bytes));
  for (const Traffic& t : s.traffic)
    traffic.emplace_back(fmt::format("{} over {}", t.kind, t.mesh_axes),
                         fmt::format("{} x, {}", t.num_collectives, with_commas(t.bytes)));
  if (s.hidden_seconds > 0) times.emplace_back("of that hidden, ms", ms(s.hidden_seconds));
  if (s.bubble_seconds > 0) times.emplace_back("stages wait, ms", ms(s.bubble_seconds));
  times.emplace_back("step, ms", ms(s.seconds()));
  return {at_rest,
          {{"activations, bytes", with_commas(s.activation_bytes)}, {"peak, bytes", with_commas(s.peak_bytes)}},
          traffic,
          times};
}

// Makes a table with one column per mesh. A line that only some meshes have is in the section of its kind.
Table table_of(const std::vector<StepForecast>& steps) {
  std::vector<std::string> titles{"on one device"};
  std::vector<std::array<Lines, 4>> sections;
  for (const StepForecast& s : steps) titles.push_back(s.mesh.to_string()), sections.push_back(sections_of(s));
  std::vector<std::vector<Table::Cell>> rows;
  for (size_t section = 0; section < 4; ++section)
    for (size_t i = 0; i < steps.size(); ++i)
      for (const auto& [title, cell] : sections[i][section]) {
        auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r[0] == Table::Cell(title); });
        if (row == rows.end()) {
          row = rows.insert(row, std::vector<Table::Cell>(titles.size(), "-"));
          row->front() = title;
        }
        (*row)[i + 1] = cell;
      }
  Table table(std::move(titles), '<' + std::string(steps.size(), '>'));
  for (const auto& row : rows) table.add(row);
  return table;
}

// Errors of the steps, printed after the table.
std::string errors_of(const std::vector<StepForecast>& steps) {
  std::string text;
  for (const StepForecast& s : steps)
    if (!s.error.empty()) text += fmt::format("{}: {}\n", s.mesh.to_string(), s.error);
  return text;
}

}  // namespace

std::string MeshComparison::to_text() const { return table_of(steps_).to_text() + errors_of(steps_); }

std::string MeshComparison::to_markdown() const {
  const std::string text = table_of(steps_).to_markdown();
  const std::string errors = errors_of(steps_);
  return errors.empty() ? text : text + '\n' + errors;
}

std::string MeshComparison::to_json() const {
  boost::json::array meshes;
  for (const StepForecast& s : steps_) meshes.push_back(detail::json_of(s));
  return boost::json::serialize(boost::json::object{{"meshes", std::move(meshes)}});
}

MeshComparison compare_meshes(const std::function<PlacementTable(const Mesh&)>& step, const std::vector<Mesh>& meshes,
                              const Hardware& hardware) {
  detail::check_hardware("compare_meshes", hardware);
  if (!step) fail(ErrorKind::invalid_argument, "compare_meshes", "an empty function given, expected a step of a Mesh.");
  std::vector<StepForecast> steps;
  for (const Mesh& mesh : meshes) {
    const Mesh abstract = mesh.impl()->has_no_hardware()
                              ? mesh
                              : make_mesh(mesh.axes(), {.abstract = true, .num_processes = mesh.process_count()});
    steps.push_back(detail::forecast_step(
        abstract, [&] { return step(abstract); }, hardware));
  }
  return MeshComparison(std::move(steps));
}

}  // namespace tessera::nn
