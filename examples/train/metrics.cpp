// Sends every row of metrics to the files that are open.
#include "examples/train/metrics.h"

#include <fmt/format.h>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <boost/system/system_error.hpp>
#include <filesystem>
#include <sstream>
#include <utility>

#include <tessera/sharding/files.h>

namespace tessera::train {
namespace {

StepMetrics step_of(const boost::json::object& row) {
  const auto number = [&](const char* key) { return row.at(key).to_number<double>(); };
  return {row.at("step").as_int64(), number("loss"), number("grad_norm"), number("learning_rate"),
          number("tokens_per_second")};
}

// Throws if `path` is a regular file of another kind. Pipes and devices are allowed.
void check_is_ours(const std::string& path, std::string_view beginning, std::string_view kind) {
  std::error_code unknown;
  if (std::filesystem::is_regular_file(path, unknown)) check_replaceable(path, beginning, kind, "metrics");
}

// ---- the charts of the page

using Look = nn::ReportSeries::Look;

nn::Curve over_steps(const std::vector<StepMetrics>& steps, double StepMetrics::*value) {
  nn::Curve curve;
  for (const StepMetrics& row : steps) curve.push_back({static_cast<double>(row.step), row.*value});
  return curve;
}

std::vector<nn::ReportChart> charts_of(const RunFacts& run, const std::vector<StepMetrics>& steps,
                                       const nn::Curve& validation) {
  const auto end = static_cast<double>(run.steps);
  return {{.title = "Loss",
           .x = "step",
           .y = "nats per byte",
           .series = {{"training loss", over_steps(steps, &StepMetrics::loss), Look::noisy},
                      {"validation loss", validation, Look::dots, true}},
           .levels = {{"bigram entropy", run.bigram_entropy}, {"unigram entropy", run.unigram_entropy}},
           .x_end = end},
          {.title = "Throughput",
           .x = "step",
           .y = "tokens per second",
           .series = {{"throughput", over_steps(steps, &StepMetrics::tokens_per_second), Look::noisy, true}},
           .from_zero = true,
           .x_end = end},
          {.title = "Norm of the gradient",
           .x = "step",
           .y = "before clipping",
           .series = {{"norm", over_steps(steps, &StepMetrics::grad_norm), Look::noisy}},
           .from_zero = true,
           .x_end = end},
          {.title = "Learning rate",
           .x = "step",
           .y = "of the update",
           .series = {{"learning rate", over_steps(steps, &StepMetrics::learning_rate)}},
           .from_zero = true,
           .x_end = end}};
}

}  // namespace

Metrics::Metrics(const MetricsFiles& files, const RunFacts& run, nn::Report report, int64_t steps_done)
    : page_(files.report), run_(run), report_(std::move(report)) {
  check_is_ours(files.report, "<!DOCTYPE html>\n<!-- The page of a report", "the page of a report");
  if (!files.json_lines.empty()) {
    const bool is_file = std::filesystem::is_regular_file(files.json_lines), goes_on = steps_done > 0 && is_file;
    check_is_ours(files.json_lines, "{\"step\":", "a file of metrics");
    if (is_file) {
      const std::string rows = rows_to_keep(files.json_lines, goes_on ? steps_done : -1);  // -1: only checks the rows
      if (goes_on) write_text(files.json_lines, rows, "metrics");
    }
    json_lines_.emplace(files.json_lines, goes_on ? OutputFile::Start::as_it_is : OutputFile::Start::empty);
  }
  if (!files.tensorboard.empty()) events_.emplace(files.tensorboard);
  write_page();
}

// Returns the lines of completed steps. Incomplete lines are dropped: a run may end in the middle of one.
std::string Metrics::rows_to_keep(const std::string& file, int64_t steps_done) {
  std::string rows, line;
  const auto keep = [&](const boost::json::object& row) {
    const int64_t step = row.at("step").as_int64();
    const bool is_kept = step <= steps_done;
    if (row.contains("validation_loss")) {
      const double loss = row.at("validation_loss").to_number<double>();
      if (is_kept) validation_.push_back({static_cast<double>(step), loss});
    } else {
      const StepMetrics metrics = step_of(row);
      if (is_kept) steps_.push_back(metrics);
    }
    if (is_kept) rows += line + '\n';
  };
  constexpr int64_t max_bytes = int64_t{1} << 29;  // about 4 million rows
  std::istringstream in(read_text(file, "metrics", max_bytes));
  in.exceptions(std::ios::badbit);
  while (std::getline(in, line) && !in.eof()) {
    try {
      keep(parse_json(line, "metrics", file).as_object());
    } catch (const boost::system::system_error&) {  // a field is missing or has the wrong type
      fail(ErrorKind::invalid_file, "metrics",
           file + ": \"" + line.substr(0, 60) + "\" is not a row of metrics. Name another file.");
    }
  }
  return rows;
}

void Metrics::write(const StepMetrics& row) {
  EventFile::Scalars scalars{{"train/loss", row.loss},
                             {"train/grad_norm", row.grad_norm},
                             {"train/learning_rate", row.learning_rate},
                             {"train/tokens_per_second", row.tokens_per_second}};
  std::string more;
  const auto add = [&](std::string_view tag, double value) {
    if (value <= 0) return;
    more += fmt::format(R"(,"{}":{:.7g})", tag.substr(tag.find('/') + 1), value);
    scalars.emplace_back(tag, value);
  };
  add("train/flops_per_second", row.flops_per_second);
  add("train/mfu", row.mfu);
  add("train/peak_bytes", static_cast<double>(row.peak_bytes));
  if (json_lines_)
    json_lines_->append(fmt::format(
        R"({{"step":{},"loss":{:.7g},"grad_norm":{:.7g},"learning_rate":{:.7g},"tokens_per_second":{:.1f}{}}})"
        "\n",
        row.step, row.loss, row.grad_norm, row.learning_rate, row.tokens_per_second, more));
  if (events_) events_->write(row.step, scalars);
  steps_.push_back(row);
}

void Metrics::write(const ValidationMetrics& row) {
  if (json_lines_)
    json_lines_->append(
        fmt::format(R"({{"step":{},"validation_loss":{:.7g},"unigram_entropy":{:.7g},"bigram_entropy":{:.7g}}})"
                    "\n",
                    row.step, row.loss, run_.unigram_entropy, run_.bigram_entropy));
  if (events_) events_->write(row.step, {{"validation/loss", row.loss}});
  validation_.push_back({static_cast<double>(row.step), row.loss});
  write_page();
}

void Metrics::write_page() {
  if (page_.empty()) return;
  report_.charts = charts_of(run_, steps_, validation_);
  write_text(page_, report_.to_html(), "metrics");
}

}  // namespace tessera::train
