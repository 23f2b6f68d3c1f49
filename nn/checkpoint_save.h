// One save on its way: the values as they were, and what is still to be written of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "nn/checkpoint.h"
#include "nn/checkpoint_plan.h"
#include "sharding/file.h"

namespace tessera::nn {

class Save {
 public:
  // Takes hold of the values: their memory is shared until it is written, and whoever would overwrite it copies it
  // first, as with any other copy of an array.
  Save(const std::filesystem::path& folder, int64_t step, const NamedState& state, const SaveExtra& extra,
       const CheckpointOptions& options);

  // Writes until no more than so many bytes are left. An error comes out in finish().
  void write_down_to(int64_t bytes_left);
  // Writes the rest and commits. After an error nothing of the checkpoint is left.
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

  static std::vector<Part> parts_of(const Leaf& leaf, const Processes& processes);
  void add_files(const std::string& folder, int64_t most_file_bytes);
  void begin();
  void write_tensor(const Work& work);
  std::filesystem::path checksums_of(int process) const;
  void leave_checksums() const;
  void gather_checksums();
  void write_indices() const;
  template <class F>
  void together(F f);

  NewCheckpoint checkpoint_;
  Processes processes_;
  Manifest manifest_;
  SavedState state_;
  std::vector<std::vector<Part>> parts_;  // of manifest_.tensors[i]
  std::vector<PlannedFile> plans_;
  std::vector<File> files_;  // of plans_[i], once begun
  std::vector<Work> work_;
  size_t next_ = 0;
  int64_t bytes_left_ = 0;
  std::exception_ptr error_;
};

}  // namespace tessera::nn
