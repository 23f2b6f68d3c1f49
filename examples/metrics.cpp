// Writes a line at a time, so that the file can be read while the training runs.
#include "examples/metrics.h"

#include <fmt/format.h>

#include "sharding/error.h"

namespace tessera::examples {

Metrics::Metrics(const std::string& path) : path_(path) {
  if (path_.empty()) return;
  file_.open(path_, std::ios::trunc);
  if (!file_) fail(ErrorKind::bad_file, "metrics", path_ + ": the file cannot be written. Check its folder.");
}

void Metrics::write(const StepMetrics& row) {
  write_line(
      fmt::format(R"({{"step":{},"loss":{:.7g},"grad_norm":{:.7g},"learning_rate":{:.7g},"tokens_per_second":{:.1f}}})",
                  row.step, row.loss, row.grad_norm, row.learning_rate, row.tokens_per_second));
}

void Metrics::write_validation(int64_t step, double loss, double unigram_entropy, double bigram_entropy) {
  write_line(fmt::format(R"({{"step":{},"validation_loss":{:.7g},"unigram_entropy":{:.7g},"bigram_entropy":{:.7g}}})",
                         step, loss, unigram_entropy, bigram_entropy));
}

void Metrics::write_line(const std::string& line) {
  if (path_.empty()) return;
  file_ << line << std::endl;
  if (!file_) fail(ErrorKind::bad_file, "metrics", path_ + ": the file cannot be written. Is the disk full?");
}

}  // namespace tessera::examples
