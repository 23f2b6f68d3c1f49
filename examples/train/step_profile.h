// StepProfile: measures some steps of a training run and writes the profile's files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tessera/nn/report.h>

namespace tessera::train {

// The settings of --profile.
struct ProfileFlags {
  std::string folder;           // gets trace.json, profile.txt and profile.json; empty: no profile
  int64_t steps = 5;            // number of measured steps
  double flops_per_second = 0;  // peak of one device; 0: unknown
};

// Measures some of the steps from `first` to `last`. It starts at the fourth, because the first ones plan and learn; if
// there are too few, it measures the last ones.
class StepProfile {
 public:
  StepProfile(const ProfileFlags& flags, int64_t first, int64_t last);

  // Enclose each step. `flops` is the number of operations of one device in a step. After the last measured step,
  // end_step returns the profile of all processes, so all of them must call it; the first one writes the files. Error
  // (invalid_file): as write_text, or the folder cannot be made.
  void begin_step(int64_t step, double flops);
  std::optional<nn::ProfileReport> end_step(int64_t step);

 private:
  ProfileFlags flags_;
  int64_t from_, to_;
  std::optional<nn::Profile> profile_;
};

}  // namespace tessera::train
