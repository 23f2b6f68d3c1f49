// Sends every row to the files that are open.
#include "examples/metrics.h"

#include <fmt/format.h>

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <filesystem>
#include <fstream>

#include "sharding/json.h"

namespace tessera::examples {

Metrics::Metrics(const MetricsFiles& files, const LossCurve& curve, int64_t steps_done)
    : svg_(files.svg), curve_(curve) {
  if (!files.json_lines.empty()) {
    const bool goes_on = steps_done > 0 && std::filesystem::is_regular_file(files.json_lines);
    if (goes_on) replace_file(files.json_lines, rows_to_keep(files.json_lines, steps_done));
    json_lines_.emplace(files.json_lines, goes_on ? OutputFile::Start::as_it_is : OutputFile::Start::empty);
  }
  if (!files.tensorboard.empty()) events_.emplace(files.tensorboard);
  draw();
}

// The lines of the steps that were done, whole ones only: a run may end in the middle of one.
std::string Metrics::rows_to_keep(const std::string& file, int64_t steps_done) {
  std::string rows, line;
  for (std::ifstream in(file); std::getline(in, line) && !in.eof();) {
    const boost::json::value value = parse_json(line, "metrics", file);
    const boost::json::object& row = value.as_object();
    const int64_t step = row.at("step").as_int64();
    if (step > steps_done) break;
    if (row.contains("validation_loss"))
      curve_.validation.push_back({step, row.at("validation_loss").to_number<double>()});
    else
      curve_.training.push_back({step, row.at("loss").to_number<double>()});
    rows += line + '\n';
  }
  return rows;
}

void Metrics::write(const StepMetrics& row) {
  if (json_lines_)
    json_lines_->append(fmt::format(
        R"({{"step":{},"loss":{:.7g},"grad_norm":{:.7g},"learning_rate":{:.7g},"tokens_per_second":{:.1f}}})"
        "\n",
        row.step, row.loss, row.grad_norm, row.learning_rate, row.tokens_per_second));
  if (events_)
    events_->write(row.step, {{"train/loss", row.loss},
                              {"train/grad_norm", row.grad_norm},
                              {"train/learning_rate", row.learning_rate},
                              {"train/tokens_per_second", row.tokens_per_second}});
  curve_.training.push_back({row.step, row.loss});
}

void Metrics::write(const ValidationMetrics& row) {
  if (json_lines_)
    json_lines_->append(
        fmt::format(R"({{"step":{},"validation_loss":{:.7g},"unigram_entropy":{:.7g},"bigram_entropy":{:.7g}}})"
                    "\n",
                    row.step, row.loss, curve_.unigram_entropy, curve_.bigram_entropy));
  if (events_) events_->write(row.step, {{"validation/loss", row.loss}});
  curve_.validation.push_back({row.step, row.loss});
  draw();
}

void Metrics::draw() const {
  if (!svg_.empty()) replace_file(svg_, curve_.svg());
}

}  // namespace tessera::examples
