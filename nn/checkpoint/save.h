// One save in progress: a snapshot of the values, and what is still to be written of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/checkpoint/checkpoint.h"
#include "nn/checkpoint/write_plan.h"
#include "sharding/files/file.h"
#include "sharding/runtime/consensus.h"

namespace tessera::nn {

// A stage that succeeds on all processes or on none: runs f, then asks whether it succeeded everywhere. Throws the
// error of f or, if only another process failed, an error that says so and names `path`. Everything that may fail on
// one process alone belongs in a stage, since the others would wait for that process at the next one.
void together(const Processes& processes, const std::filesystem::path& path, const char* verb,
              const std::function<void()>& f);
// The processes of this program, which agree on each stage by a vote.
Processes voting_by(std::shared_ptr<tessera::detail::Votes> votes);
// The same for all processes of the program if the model is on devices of several, otherwise for this process alone.
void together(const Leaves& model, const std::filesystem::path& path, const char* verb, const std::function<void()>& f);
// Whether an array is on devices of several processes, or, if it is a recipe, will be under these mesh rules.
bool is_of_several(const Leaf& leaf, const std::optional<MeshRules>& mesh_rules = {});

// Of each array of a tree, the processes that have values of it. A mesh of one process alone is either of each process,
// which has one like it, or known to all processes, of which that one has the values: they find out here together.
// Empty: every process has the values of its mesh's devices.
using WhoHas = std::vector<std::vector<int>>;
WhoHas who_has_values(const NamedState& state, tessera::detail::Votes& votes);

// One save, in stages that are the same on every process and in the same order: two to begin, one to write, one to
// commit. A process may run them on any of its threads.
class Save {
 public:
  // Checks and plans: what may fail on one process alone.
  Save(const std::filesystem::path& folder, int64_t step, const NamedState& state, const SaveExtra& extra,
       const CheckpointOptions& options);

  // Takes a snapshot of the same state: the values' memory is shared until it is written, and whatever would overwrite
  // it copies it first, as with any other copy of an array. Pending sums are summed, a collective.
  void take(const NamedState& state, const WhoHas& who_has = {});

  // A text that must be the same on all processes that save.
  std::string identity() const;

  // Writes until at most so many bytes are left. An error is thrown by finish(), so that this happens on every process,
  // however much each of them has left.
  void write_down_to(int64_t bytes_left) noexcept;
  // Writes the rest, commits, and deletes checkpoints that are not kept. After an error nothing of this one is left,
  // unless it says that the step is complete: then only an older one could not be deleted.
  void finish();

 private:
  struct Part {  // the part of a tensor that this process writes
    IndexRanges block;
    at::Tensor values;
  };
  struct Work {  // one tensor, in the order of the files
    size_t tensor, file;
    int64_t offset;  // in the file
  };

  // The parts of the values that this process writes.
  static std::vector<Part> parts_of(const Leaf& leaf, const Processes& processes, const std::vector<int>& holders);
  void add_files(const std::string& folder, int64_t max_file_bytes);
  void begin();
  void write_tensor(const Work& work);
  void flush_up_to(size_t file, int64_t offset);
  std::filesystem::path checksums_of(int process) const;
  void leave_checksums() const;
  void gather_checksums();
  void stage(const std::function<void()>& f);

  NewCheckpoint checkpoint_;
  Processes processes_;
  RetentionPolicy keep_;
  Manifest manifest_;
  SavedState state_;
  std::string placements_;                // shardings of all arrays, which must be equal on all processes
  std::vector<std::vector<Part>> parts_;  // of manifest_.tensors[i]
  std::vector<PlannedFile> plans_;
  std::vector<File> files_;       // of plans_[i], once begun
  std::vector<int64_t> flushed_;  // of each file, the bytes that the disk was asked to start writing
  std::vector<Work> work_;
  size_t next_ = 0;
  int64_t bytes_left_ = 0;
  bool begun_ = false;
  std::exception_ptr error_;  // of this process alone, until the next stage tells the others
  std::exception_ptr over_;   // of a stage: every process has an error then
};

}  // namespace tessera::nn
