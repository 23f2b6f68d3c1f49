// One save in progress: a snapshot of the values, and the part of it that is not written yet.
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

// Runs a stage that succeeds on all processes or on none: runs f, then asks whether f succeeded on every process.
// Throws the error of f. If only another process failed, throws an error that reports it and names `path`. Everything
// that may fail on one process alone belongs in a stage: otherwise the others would wait for that process at the next
// stage.
void together(const Processes& processes, const std::filesystem::path& path, const char* verb,
              const std::function<void()>& f);
// Returns the processes of this program, which agree on each stage by a vote.
Processes voting_by(std::shared_ptr<tessera::detail::Votes> votes);
// Runs a stage on all processes of the program if the model is on devices of several processes; otherwise on this
// process alone.
void together(const Leaves& model, const std::filesystem::path& path, const char* verb, const std::function<void()>& f);
// Returns true if an array is on devices of several processes. A lazy initializer has the sharding that these mesh
// rules give it.
bool is_of_several(const Leaf& leaf, const std::optional<MeshRules>& mesh_rules = {});

// For each array of a tree, the processes that have its values. Empty: every process has the values of its mesh's
// devices. The processes exchange texts to decide, because a mesh of one process is ambiguous. Either each process has
// an equal mesh of its own, or all processes have the mesh but only one has its values.
using WhoHas = std::vector<std::vector<int>>;
WhoHas who_has_values(const NamedState& state, tessera::detail::Votes& votes);

// One save, in stages that are the same on every process and in the same order: two stages begin it, one writes, one
// commits. A process may run them on any of its threads.
class Save {
 public:
  // Checks the arguments and plans the files: everything that may fail on one process alone.
  Save(const std::filesystem::path& folder, int64_t step, const NamedState& state, const SaveExtra& extra,
       const CheckpointOptions& options);

  // Takes a snapshot of the same state. The snapshot shares the memory of the values until they are written. An update
  // that would overwrite them copies first, as with any copy of an array. Partial sums are reduced, which is a
  // collective.
  void take(const NamedState& state, const WhoHas& who_has = {});

  // Returns a text that must be the same on all processes that save.
  std::string identity() const;

  // Writes until at most `bytes_left` bytes are left. finish() throws any error, so that it is thrown on every process,
  // regardless of how much each has left.
  void write_down_to(int64_t bytes_left) noexcept;
  // Writes the rest, commits, and deletes checkpoints that are not kept. After an error, nothing of this checkpoint
  // remains, unless the message states that the step is complete: then only an older checkpoint could not be deleted.
  void finish();

 private:
  struct Part {  // part of a tensor that this process writes
    IndexRanges block;
    at::Tensor values;
  };
  struct Work {  // one tensor, in the order of the files
    size_t tensor, file;
    int64_t offset;  // position of the tensor's first byte in the file
  };

  // Returns the parts of the values that this process writes.
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
  std::vector<std::vector<Part>> parts_;  // parts of manifest_.tensors[i]
  std::vector<PlannedFile> plans_;
  std::vector<File> files_;       // file of plans_[i], once begun
  std::vector<int64_t> flushed_;  // per file, the bytes that the disk was asked to write
  std::vector<Work> work_;
  size_t next_ = 0;
  int64_t bytes_left_ = 0;
  bool begun_ = false;
  std::exception_ptr error_;  // an error of this process alone, until the next stage reports it
  std::exception_ptr over_;   // an error of a stage, which every process has
};

}  // namespace tessera::nn
