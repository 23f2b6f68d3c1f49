// Progress: a line that redraws itself on a terminal; otherwise occasional lines.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <tessera/data/loader.h>

namespace tessera::train {

//   Progress progress(steps, records_per_step, tokens_per_record);
//   for (int64_t step = 1; step <= steps; ++step) {
//     progress.begin_step();
//     ...
//     progress.end_step(step, loss, loader.progress());
//   }
// shows [=====>    ] step 312/500  epoch 1, 34 %  loss 1.923  110 records/s, 14.1k tokens/s  0:51 left
class Progress {
 public:
  Progress(int64_t steps, int64_t records_per_step, int64_t tokens_per_record);

  // Enclose a step; time outside (validation, printing) does not count. end_step returns tokens per second.
  void begin_step();
  double end_step(int64_t step, double loss, const data::LoaderProgress& input);

  // Adds utilization to the lines: a step takes `flops` operations per device, whose peak is `peak` operations per
  // second; 0 means unknown.
  void show_utilization(double flops, double peak) { flops_ = flops, peak_ = peak; }

  // Prints a permanent line above the bar.
  void print(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;

  bool is_due(int64_t step) const;
  void draw(const std::string& line, int64_t step);
  std::string line(int64_t step, double loss, const data::LoaderProgress& input) const;

  int64_t steps_, records_per_step_, tokens_per_record_;
  bool terminal_;
  Clock::time_point began_ = {}, drawn_ = {};
  int64_t steps_timed_ = 0;
  double flops_ = 0, peak_ = 0;
  double mean_seconds_ = 0;  // per step; recent steps have the largest weight
};

}  // namespace tessera::train
