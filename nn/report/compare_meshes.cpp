// A forecast for each mesh, and the table of all.
#include "nn/report/compare_meshes.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <ostream>

#include "sharding/base/fail.h"
#include "sharding/base/text_format.h"
#include "sharding/placement/mesh_impl.h"

namespace tessera::nn {

using tessera::detail::with_commas;

namespace {

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
    table.set(fmt::format("{} over {}", t.kind, t.mesh_axes), column,
              fmt::format("{} x, {}", t.num_collectives, with_commas(t.bytes)));
}

void fill_times(Table& table, const StepForecast& s, size_t column) {
  table.set("operations", column, fmt::format("{:.4g}", s.flops));
  table.set("compute, ms", column, fmt::format("{:.4g}", s.compute_seconds * 1e3));
  table.set("communication, ms", column, fmt::format("{:.4g}", s.communication_seconds * 1e3));
  if (s.hidden_seconds > 0) table.set("of that hidden, ms", column, fmt::format("{:.4g}", s.hidden_seconds * 1e3));
  if (s.bubble_seconds > 0) table.set("stages wait, ms", column, fmt::format("{:.4g}", s.bubble_seconds * 1e3));
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

// One of words, and one of numbers for each mesh.
std::string columns_of(const std::vector<StepForecast>& steps) {
  std::string line = "<";
  for (size_t i = 0; i < steps.size(); ++i) line += "  >";
  return line;
}

// What went wrong, below the table.
std::string errors_of(const std::vector<StepForecast>& steps) {
  std::string text;
  for (const StepForecast& s : steps)
    if (!s.error.empty()) text += fmt::format("{}: {}\n", s.mesh.to_string(), s.error);
  return text;
}

}  // namespace

std::string MeshComparison::to_text() const {
  return tessera::detail::text_table(lines_of(steps_), columns_of(steps_)) + errors_of(steps_);
}

std::string MeshComparison::to_markdown() const {
  const std::string text = tessera::detail::markdown_table(lines_of(steps_), columns_of(steps_));
  const std::string errors = errors_of(steps_);
  return errors.empty() ? text : text + '\n' + errors;
}

std::string MeshComparison::to_json() const {
  boost::json::array meshes;
  for (const StepForecast& s : steps_) meshes.push_back(detail::json_of(s));
  return boost::json::serialize(boost::json::object{{"meshes", std::move(meshes)}});
}

std::ostream& operator<<(std::ostream& out, const MeshComparison& comparison) { return out << comparison.to_text(); }

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
