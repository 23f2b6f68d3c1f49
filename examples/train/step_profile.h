// StepProfile: some steps of a training as they are measured, and the files of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tessera/nn/report.h>

namespace tessera::train {

// What --profile asks for.
struct ProfileFlags {
  std::string folder;           // gets trace.json, profile.txt and profile.json; empty: nothing is measured
  int64_t steps = 5;            // that are measured
  double flops_per_second = 0;  // of one device at its peak; 0: not known
};

// Measures some of the steps from `first` to `last`: from the fourth on, since the first ones plan and learn, or the
// last ones where there are not enough.
class StepProfile {
 public:
  StepProfile(const ProfileFlags& flags, int64_t first, int64_t last);

  // Enclose each step. `flops`: of one device in a step. end_step returns the profile of all processes after the last
  // step that is measured, for which all processes call it; the first writes the files. Error (invalid_file): as
  // write_text, or the folder cannot be made.
  void begin_step(int64_t step, double flops);
  std::optional<nn::ProfileReport> end_step(int64_t step);

 private:
  ProfileFlags flags_;
  int64_t from_, to_;
  std::optional<nn::Profile> profile_;
};

}  // namespace tessera::train
