// One save on its way: the values as they were, and what is still to be written of them.
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
#include "sharding/distributed/consensus.h"
#include "sharding/files/file.h"

namespace tessera::nn {

// A stage that all processes pass, or none: f here, then everybody's word on it. Throws the error of f, or where f went
// well and another process's did not, one that says so of `path`. Whatever may fail on one process alone belongs into
// a stage, since the others would wait for it at the next.
void together(const Processes& processes, const std::filesystem::path& path, const char* verb,
              const std::function<void()>& f);
// The program's, whose word on a stage is a vote.
Processes voting_by(std::shared_ptr<tessera::detail::Votes> votes);
// Whether an array lies on devices of several processes; a recipe, whether it will by this layout.
bool is_of_several(const Leaf& leaf, const std::optional<Layout>& layout = {});

// The stages of one save, the same on every process in the same order: begin, twice, then write and commit. Each
// process may pass them from whichever thread is at hand.
class Save {
 public:
  // Takes hold of the values: their memory is shared until it is written, and whoever would overwrite it copies it
  // first, as with any other copy of an array.
  Save(const std::filesystem::path& folder, int64_t step, const NamedState& state, const SaveExtra& extra,
       const CheckpointOptions& options);

  // What all processes that save must have alike.
  std::string identity() const;

  // Writes until no more than so many bytes are left. An error comes out in finish(), so that it does so on every
  // process, however much each of them has left.
  void write_down_to(int64_t bytes_left) noexcept;
  // Writes the rest, commits, and deletes what need not be kept. After an error nothing of the checkpoint is left.
  void finish();

 private:
  struct Part {  // of a tensor: what this process writes of it
    IndexRanges block;
    at::Tensor values;
  };
  struct Work {  // one tensor, in the order of the files
    size_t tensor, file;
    int64_t offset;  // in the file
  };

  // The parts of the values that this process writes.
  static std::vector<Part> parts_of(const Leaf& leaf, const Processes& processes);
  void add_files(const std::string& folder, int64_t most_file_bytes);
  void begin();
  void write_tensor(const Work& work);
  void flush_up_to(size_t file, int64_t offset);
  std::filesystem::path checksums_of(int process) const;
  void leave_checksums() const;
  void gather_checksums();
  void stage(const std::function<void()>& f);

  NewCheckpoint checkpoint_;
  Processes processes_;
  Keep keep_;
  Manifest manifest_;
  SavedState state_;
  std::vector<std::vector<Part>> parts_;  // of manifest_.tensors[i]
  std::vector<PlannedFile> plans_;
  std::vector<File> files_;       // of plans_[i], once begun
  std::vector<int64_t> flushed_;  // of each file, the bytes that the disk has been asked to begin with
  std::vector<Work> work_;
  size_t next_ = 0;
  int64_t bytes_left_ = 0;
  bool begun_ = false;
  std::exception_ptr error_;  // of this process alone, until the next stage tells the others
  std::exception_ptr over_;   // of a stage: all processes have one
};

}  // namespace tessera::nn
