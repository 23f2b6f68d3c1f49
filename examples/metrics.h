// Metrics: what a training measures, as a file of one JSON object a line.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace tessera::examples {

struct StepMetrics {
  int64_t step = 0;
  double loss = 0;           // before the update, nats per byte
  double grad_norm = 0;      // before clipping
  double learning_rate = 0;  // of the update
  double tokens_per_second = 0;
};

class Metrics {
 public:
  // An empty path writes nothing. Error (bad_file): the file cannot be written.
  explicit Metrics(const std::string& path);

  // {"step":7,"loss":4.1,"grad_norm":1.3,"learning_rate":0.0002,"tokens_per_second":14200}
  void write(const StepMetrics& row);
  // {"step":100,"validation_loss":2.4,"unigram_entropy":3.6,"bigram_entropy":2.6}
  void write_validation(int64_t step, double loss, double unigram_entropy, double bigram_entropy);

 private:
  void write_line(const std::string& line);

  std::string path_;
  std::ofstream file_;
};

}  // namespace tessera::examples
