// The folder of a run's checkpoints: which are complete, how a new one is committed, and which are kept.
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

// Which checkpoints stay: those that any of these options selects, always the newest (the highest step), and the one
// that was just saved. If no option is set, all stay. With `best`, a damaged checkpoint, whose metric is unknown, stays
// as well and is no error.
struct RetentionPolicy {
  int64_t latest = 0;  // this many of the newest
  int64_t every = 0;   // those whose step is a multiple of this
  int64_t best = 0;    // this many of the best by `metric`; checkpoints without it do not count
  std::string metric = {};
  bool higher_is_better = false;
};

struct StepMetric {
  int64_t step = 0;
  std::optional<double> value = {};  // of RetentionPolicy::metric
};

// The steps to delete; `saved` is in increasing order of steps.
std::vector<int64_t> steps_to_delete(const std::vector<StepMetric>& saved, const RetentionPolicy& keep);

// The steps of the complete checkpoints in a folder, in increasing order: the folders whose name is a number and that
// have the commit mark. Others (of interrupted saves) are skipped. A missing folder has none. Error (invalid_file): the
// folder cannot be listed.
std::vector<int64_t> checkpoint_steps(const std::filesystem::path& folder);

// The checkpoint that a path means: the path itself if it is a checkpoint, else the newest complete checkpoint in it.
// Error (invalid_file): there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& path, const char* verb = "restore");

// manifest.json and state.json, checked against the checksums in the commit mark. Errors (invalid_file).
Manifest read_manifest(const std::filesystem::path& checkpoint);
SavedState read_state(const std::filesystem::path& checkpoint);

// A checkpoint that is being written. It is made in <folder>/<step>.tmp, so nothing looks complete before commit(), and
// an interrupted save, even one whose process ended, leaves the other checkpoints as they are.
class NewCheckpoint {
 public:
  NewCheckpoint(std::filesystem::path folder, int64_t step);

  const std::filesystem::path& path() const { return temporary_; }  // the temporary folder

  // Makes the temporary folder, with params/ and state/ if wanted. Removes what an interrupted save of this step left.
  void begin(bool params, bool state) const;
  // Writes the JSON files and the commit mark, syncs them, `files` and the folders to the disk, and renames the folder:
  // from here on the checkpoint is complete. The files are synced together, since a disk syncs many in the time of one.
  void commit(const Manifest& manifest, const SavedState& state, std::span<const File> files) const;
  // Removes the temporary folder after an error; does not throw.
  void abandon() const noexcept;

 private:
  std::filesystem::path folder_, temporary_, final_;
};

// Error (invalid_file) if there is a checkpoint of this step.
void check_step_is_free(const std::filesystem::path& folder, int64_t step);

// Deletes the checkpoints of these steps. Each is renamed first, so that none is ever there in part.
void delete_checkpoints(const std::filesystem::path& folder, const std::vector<int64_t>& steps);

// Removes what interrupted saves and deletions left. Only the holder of the folder's lock may call it.
void remove_leftovers(const std::filesystem::path& folder);

// Deletes the steps_to_delete of a folder, but never the step that was just saved. A checkpoint that cannot be read
// stays, since its metric is unknown.
void apply_retention(const std::filesystem::path& folder, const RetentionPolicy& keep, int64_t just_saved);

}  // namespace tessera::nn
