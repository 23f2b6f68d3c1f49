// Sends every row to the files that are open.
#include "examples/metrics.h"

#include <fmt/format.h>

namespace tessera::examples {

Metrics::Metrics(const MetricsFiles& files, const LossCurve& curve) : svg_(files.svg), curve_(curve) {
  if (!files.json_lines.empty()) json_lines_.emplace(files.json_lines);
  if (!files.tensorboard.empty()) events_.emplace(files.tensorboard);
  draw();
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
