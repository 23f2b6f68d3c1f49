// Metrics: writes the measurements of a training run to every requested file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tessera/nn/report.h>

#include "examples/train/event_file.h"

namespace tessera::train {

struct StepMetrics {
  int64_t step = 0;
  double loss = 0;           // before the update, nats per byte
  double grad_norm = 0;      // before clipping
  double learning_rate = 0;  // the update's rate
  double tokens_per_second = 0;
  double flops_per_second = 0;  // FLOP/s of one device; here and below, 0 means unknown
  double mfu = 0;               // the fraction of its peak
  int64_t peak_bytes = 0;       // maximum of this process so far
};

struct ValidationMetrics {
  int64_t step = 0;
  double loss = 0;  // nats per byte
};

// Facts of a run that its charts show from the start.
struct RunFacts {
  int64_t steps = 0;                               // steps of the complete run: the end of the axis
  double unigram_entropy = 0, bigram_entropy = 0;  // nats per byte of the corpus: two horizontal lines
};

// The files of the metrics; nothing is written for an empty path.
struct MetricsFiles {
  std::string json_lines;   // a file with one JSON object per line
  std::string tensorboard;  // a folder for a TensorBoard event file
  std::string report;       // a page of shardings, communication and curves, rewritten at every validation
};

class Metrics {
 public:
  // `report` has the title, facts and sharding table of the page. If the run resumes after `steps_done` steps, their
  // rows in the file of JSON lines are kept and drawn again. Error (invalid_file), here and in both `write`: a file
  // cannot be written.
  Metrics(const MetricsFiles& files, const RunFacts& run, nn::Report report = {}, int64_t steps_done = 0);

  // has_rows: rows are written, so count a step's operations. has_page: a page is written, so summarize a step.
  bool has_rows() const { return json_lines_ || events_; }
  bool has_page() const { return !page_.empty(); }
  // Sets the collectives and activations of one step, and the profile of some steps, for the page.
  void keep(const std::vector<CommRecord>& collectives) { report_.collectives = collectives; }
  void keep(nn::ActivationTable activations) { report_.activations = std::move(activations); }
  void keep(const nn::ProfileReport& profile) { report_.profile = profile; }

  // Writes {"step":7,"loss":4.1,"grad_norm":1.3,"learning_rate":0.0002,"tokens_per_second":14200} and known values of
  // "flops_per_second", "mfu" and "peak_bytes" as a JSON line. To TensorBoard: train/loss, train/grad_norm,
  // train/learning_rate, train/tokens_per_second and so on.
  void write(const StepMetrics& row);
  // Writes {"step":100,"validation_loss":2.4,"unigram_entropy":3.6,"bigram_entropy":2.6} as a JSON line, and to
  // TensorBoard validation/loss.
  void write(const ValidationMetrics& row);
  // Waits until the JSON lines are on the disk. Call it before a checkpoint, so that a resumed run finds all its rows.
  void sync() const {
    if (json_lines_) json_lines_->sync();
  }

 private:
  std::string rows_to_keep(const std::string& file, int64_t steps_done);
  void write_page();

  std::optional<OutputFile> json_lines_;
  std::optional<EventFile> events_;
  std::string page_;
  RunFacts run_;
  std::vector<StepMetrics> steps_;
  nn::Curve validation_;
  nn::Report report_;
};

}  // namespace tessera::train
