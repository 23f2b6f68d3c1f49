// Metrics: the measurements of a training, written to every file that was asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tessera/nn/report.h>

#include "examples/train/event_file.h"
#include "examples/train/loss_curve.h"

namespace tessera::train {

struct StepMetrics {
  int64_t step = 0;
  double loss = 0;           // before the update, nats per byte
  double grad_norm = 0;      // before clipping
  double learning_rate = 0;  // of the update
  double tokens_per_second = 0;
  double flops_per_second = 0;  // of one device; 0, here and below: not known
  double mfu = 0;               // the share of its peak
  int64_t peak_bytes = 0;       // the most that this process has had at once
};

struct ValidationMetrics {
  int64_t step = 0;
  double loss = 0;  // nats per byte
};

// The files of the metrics; an empty path writes nothing.
struct MetricsFiles {
  std::string json_lines;   // a file of one JSON object a line
  std::string tensorboard;  // a folder for a TensorBoard event file
  std::string svg;          // a picture of the loss, drawn anew at every validation
  std::string report;       // a page of placement, communication and curves, written anew at every validation
};

class Metrics {
 public:
  // `curve` has what the picture shows from the start: its caption, its steps, the entropies; `report` what the page
  // shows: title, facts, placement. If the run resumes after `steps_done` steps, their rows in the file of JSON lines
  // are kept and drawn again. Error (invalid_file), here and in both `write`: a file cannot be written.
  Metrics(const MetricsFiles& files, const LossCurve& curve, nn::Report report = {}, int64_t steps_done = 0);

  // Whether rows are written, for which the operations of a step are counted, and a page, for which a step is traced.
  bool has_rows() const { return json_lines_ || events_; }
  bool has_page() const { return !page_.empty(); }
  // Sets the collectives and the activations of one step, and the times of some, for the page.
  void keep(const std::vector<CommRecord>& collectives) { report_.collectives = collectives; }
  void keep(nn::ActivationTable activations) { report_.activations = std::move(activations); }
  void keep(const nn::ProfileReport& profile) { report_.profile = profile; }

  // {"step":7,"loss":4.1,"grad_norm":1.3,"learning_rate":0.0002,"tokens_per_second":14200}
  // and what is known of "flops_per_second", "mfu" and "peak_bytes";
  // train/loss, train/grad_norm, train/learning_rate, train/tokens_per_second and so on
  void write(const StepMetrics& row);
  // {"step":100,"validation_loss":2.4,"unigram_entropy":3.6,"bigram_entropy":2.6}
  // validation/loss
  void write(const ValidationMetrics& row);

 private:
  std::string rows_to_keep(const std::string& file, int64_t steps_done);
  void remember(const StepMetrics& row);
  void draw();

  std::optional<OutputFile> json_lines_;
  std::optional<EventFile> events_;
  std::string svg_, page_;
  LossCurve curve_;
  std::vector<StepMetrics> steps_;
  nn::Report report_;
};

}  // namespace tessera::train
