// The folder of a run's checkpoints: which are complete, how one becomes so, and which are kept.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nn/checkpoint/manifest.h"
#include "sharding/files/file.h"

namespace tessera::nn {

// Which checkpoints stay: those that any of these names, and always the newest (that is the highest step) and the one
// that was just saved. With none of them set, all stay. One that is damaged has no rank: where `best` is set it stays,
// and no save fails for it.
struct Keep {
  int64_t latest = 0;  // the newest so many
  int64_t every = 0;   // those whose step is a multiple
  int64_t best = 0;    // so many of the best by `metric`; checkpoints without metrics are not among them
  std::string metric = {};
  bool higher_is_better = false;
};

struct StepMetric {
  int64_t step = 0;
  std::optional<double> value = {};  // of Keep::metric
};

// The steps, of these in increasing order, that go.
std::vector<int64_t> steps_to_delete(const std::vector<StepMetric>& saved, const Keep& keep);

// The steps of the complete checkpoints in a folder, in increasing order: the folders whose name is a number and that
// have the mark of a commit. Others (of saves that were interrupted) are passed over. A missing folder has none.
// Error (bad_file): the folder cannot be listed.
std::vector<int64_t> checkpoint_steps(const std::filesystem::path& folder);

// The checkpoint that a path means: itself, if it is one, else the newest complete one in it.
// Error (bad_file): there is none.
std::filesystem::path find_checkpoint(const std::filesystem::path& path, const char* verb = "restore");

// The texts of a checkpoint, compared with the checksums in its mark. Errors (bad_file).
Manifest read_manifest(const std::filesystem::path& checkpoint);
SavedState read_state(const std::filesystem::path& checkpoint);

// One checkpoint on its way. It is made in <folder>/<step>.tmp, so nothing there looks complete before commit(), and a
// save that ends in between, with its process or without, leaves the others as they are.
class NewCheckpoint {
 public:
  NewCheckpoint(std::filesystem::path folder, int64_t step);

  const std::filesystem::path& path() const { return temporary_; }  // while it is made

  // Makes the folder, with params/ and state/ as they are wanted. What an interrupted save of this step left is
  // removed.
  void begin(bool params, bool state) const;
  // Writes the texts and the mark, waits until these, `files` and all names are on the disk, and renames: from here on
  // it is complete. They are synced together, since a disk does many at once in the time of one.
  void commit(const Manifest& manifest, const SavedState& state, std::span<const File> files) const;
  // Removes it, after an error; does not throw.
  void abandon() const noexcept;

 private:
  std::filesystem::path folder_, temporary_, final_;
};

// Error (bad_file) if there is a checkpoint of this step.
void check_step_is_free(const std::filesystem::path& folder, int64_t step);

// Deletes the checkpoints of these steps. Each stops being one at once, so that none is ever there in part.
void delete_checkpoints(const std::filesystem::path& folder, const std::vector<int64_t>& steps);

// Removes what interrupted saves and deletions left. Only for who holds the folder's lock.
void remove_leftovers(const std::filesystem::path& folder);

// steps_to_delete of what is in the folder, deleted, but never the one that was just saved. One that cannot be read
// is passed over and stays: nobody knows its metric.
void apply_retention(const std::filesystem::path& folder, const Keep& keep, int64_t just_saved);

}  // namespace tessera::nn
