// Opens a profile before the first measured step, and writes it after the last.
#include "examples/train/step_profile.h"

#include <algorithm>
#include <filesystem>

#include <tessera/sharding/base.h>
#include <tessera/sharding/files.h>
#include <tessera/sharding/runtime.h>

namespace tessera::train {
namespace {

void write(const nn::ProfileReport& report, const std::filesystem::path& folder) {
  constexpr size_t all_rows = 1000;
  write_text(folder / "trace.json", report.chrome_trace(), "profile");
  write_text(folder / "profile.txt", report.to_text(all_rows), "profile");
  write_text(folder / "profile.json", report.to_json(), "profile");
}

}  // namespace

StepProfile::StepProfile(const ProfileFlags& flags, int64_t first, int64_t last)
    : flags_(flags),
      from_(std::max(first, std::min(first + 3, last - flags.steps + 1))),
      to_(std::min(from_ + flags.steps - 1, last)) {
  if (!flags_.folder.empty() && process_index() == 0) make_folders(flags_.folder, "profile");
}

void StepProfile::begin_step(int64_t step, double flops) {
  if (flags_.folder.empty() || step < from_ || step > to_) return;
  if (!profile_) profile_.emplace(nn::ProfileOptions{flops, flags_.flops_per_second});
  profile_->begin_step();
}

std::optional<nn::ProfileReport> StepProfile::end_step(int64_t step) {
  if (!profile_) return std::nullopt;
  profile_->step();
  if (step < to_) return std::nullopt;
  nn::ProfileReport report = profile_->gather();
  profile_.reset();
  if (process_index() == 0) write(report, flags_.folder);
  return report;
}

}  // namespace tessera::train
