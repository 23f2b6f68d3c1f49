// Draws the progress bar on a terminal; otherwise prints twenty lines over the whole run.
#include "examples/train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace tessera::train {
namespace {

std::string bar(int64_t step, int64_t steps) {
  constexpr size_t width = 24;
  const auto done = static_cast<size_t>(static_cast<int64_t>(width) * step / steps);
  std::string text = std::string(done, '=') + (done < width ? ">" : "");
  text.resize(width, ' ');
  return "[" + text + "]";
}

std::string minutes(double seconds) {
  const auto whole = std::llround(seconds);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string thousands(double value) {
  return value < 1000 ? fmt::format("{:.0f}", value) : fmt::format("{:.1f}k", value / 1000);
}

std::string utilization(double flops_per_second, double peak) {
  return peak > 0 && flops_per_second > 0 ? fmt::format(", MFU {:.1f} %", 100 * flops_per_second / peak) : "";
}

}  // namespace

Progress::Progress(int64_t steps, int64_t records_per_step, int64_t tokens_per_record)
    : steps_(steps),
      records_per_step_(records_per_step),
      tokens_per_record_(tokens_per_record),
      terminal_(isatty(STDOUT_FILENO) == 1) {}

void Progress::begin_step() { began_ = Clock::now(); }

double Progress::end_step(int64_t step, double loss, const data::LoaderProgress& input) {
  const double seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  mean_seconds_ = ++steps_timed_ <= 2 ? seconds : 0.95 * mean_seconds_ + 0.05 * seconds;  // step 1 plans and allocates
  if (is_due(step)) draw(line(step, loss, input), step);
  return static_cast<double>(records_per_step_ * tokens_per_record_) / seconds;
}

void Progress::draw(const std::string& line, int64_t step) {
  drawn_ = Clock::now();
  if (terminal_)
    fmt::print("\r\033[K{} {}", bar(step, steps_), line);
  else
    fmt::print("{}\n", line);
  if (terminal_ && step == steps_) fmt::print("\n");
  std::fflush(stdout);
}

void Progress::print(const std::string& line) {
  fmt::print("{}{}\n", terminal_ ? "\r\033[K" : "", line);
  std::fflush(stdout);
}

bool Progress::is_due(int64_t step) const {
  if (step == 1 || step == steps_) return true;
  if (terminal_) return Clock::now() - drawn_ > std::chrono::milliseconds(100);
  return step % std::max<int64_t>(1, steps_ / 20) == 0;
}

std::string Progress::line(int64_t step, double loss, const data::LoaderProgress& input) const {
  const double records = static_cast<double>(records_per_step_) / mean_seconds_;
  return fmt::format("step {:>{}}/{}  epoch {}, {:.0f} %  loss {:.3f}  {} records/s, {} tokens/s{}  {} left", step,
                     std::to_string(steps_).size(), steps_, input.epoch, std::floor(100 * input.fraction), loss,
                     thousands(records), thousands(records * static_cast<double>(tokens_per_record_)),
                     utilization(flops_ / mean_seconds_, peak_),
                     minutes(mean_seconds_ * static_cast<double>(steps_ - step)));
}

}  // namespace tessera::train
