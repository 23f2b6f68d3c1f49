// The folder of a run's checkpoints: lists complete ones, commits a new one, and applies the retention policy.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nn/checkpoint/manifest.h"
#include "sharding/files/file.h"

namespace tessera::nn {

// Selects the checkpoints to keep:
//   every checkpoint that one of these options selects; all checkpoints if no option is set
//   the newest checkpoint (the highest step), and the checkpoint that was just saved
//   with `best`, a damaged checkpoint, because its metric is unknown; it is not an error
struct RetentionPolicy {
  int64_t latest = 0;  // number of newest checkpoints
  int64_t every = 0;   // steps that are a multiple of this number
  int64_t best = 0;    // number of checkpoints with the best `metric`; those without the metric do not count
  std::string metric = {};
  bool higher_is_better = false;
};

struct StepMetric {
  int64_t step = 0;
  std::optional<double> value = {};  // value of RetentionPolicy::metric
};

// Returns the steps to delete; `saved` is in increasing order of steps.
std::vector<int64_t> steps_to_delete(const std::vector<StepMetric>& saved, const RetentionPolicy& keep);

// Returns the steps of the complete checkpoints in a folder, in increasing order. A complete checkpoint is a folder
// that has a number as its name and contains the commit mark. Other folders, for example of interrupted saves, are
// skipped. Returns an empty list if the folder does not exist. Error (invalid_file): the folder cannot be listed.
std::vector<int64_t> checkpoint_steps(const std::filesystem::path& folder);

// Returns the path itself if it is a checkpoint, otherwise the newest complete checkpoint in it. Error (invalid_file):
// there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& path, const char* verb = "restore");

// Read manifest.json and state.json, and compare them with the checksums in the commit mark. Errors (invalid_file).
Manifest read_manifest(const std::filesystem::path& checkpoint);
SavedState read_state(const std::filesystem::path& checkpoint);

// Writes a checkpoint in <folder>/<step>.tmp, so that nothing looks complete before commit(). An interrupted save, even
// of a process that ended, does not affect the other checkpoints.
class NewCheckpoint {
 public:
  NewCheckpoint(std::filesystem::path folder, int64_t step);

  const std::filesystem::path& path() const { return temporary_; }  // temporary folder

  // Creates the temporary folder, with params/ and state/ if requested. Removes the remains of an interrupted save of
  // this step.
  void begin(bool params, bool state) const;
  // Writes the JSON files and the commit mark, syncs them, `files` and the folders to the disk, and renames the folder,
  // which completes the checkpoint. The files are synced together, because a disk syncs many files in the time of one.
  void commit(const Manifest& manifest, const SavedState& state, std::span<const File> files) const;
  // Removes the temporary folder after an error; does not throw.
  void abandon() const noexcept;

 private:
  std::filesystem::path folder_, temporary_, final_;
};

// Throws Error (invalid_file) if there is a checkpoint of this step.
void check_step_is_free(const std::filesystem::path& folder, int64_t step);

// Throws invalid_file if the folder of a step is incomplete, for example an interrupted copy. A run that reaches this
// step could not save it.
void check_steps_are_complete(const std::filesystem::path& folder);

// Deletes the checkpoints of these steps. Each is renamed first, so that no incomplete checkpoint is ever visible.
void delete_checkpoints(const std::filesystem::path& folder, const std::vector<int64_t>& steps);

// Removes the remains of interrupted saves and deletions. Only the holder of the folder's lock may call it.
void remove_leftovers(const std::filesystem::path& folder);

// Deletes the steps_to_delete of a folder, but never the step that was just saved. A checkpoint that cannot be read is
// kept, because its metric is unknown.
void apply_retention(const std::filesystem::path& folder, const RetentionPolicy& keep, int64_t just_saved);

}  // namespace tessera::nn
