// Plan of a save: each tensor's file and offset, and the blocks that each process writes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "sharding/files/safetensors_writer.h"

namespace tessera::nn {

// One file of a checkpoint.
struct PlannedFile {
  std::string file;  // params/model-00001-of-00002.safetensors
  SafetensorsPlan layout;
};

// Assigns tensors, in order, to files of at most `max_bytes`: <folder>/model-0000k-of-0000n.safetensors. Each tensor is
// complete in one file, so a single tensor may exceed the limit. The plan depends on nothing else, for example not on a
// mesh.
std::vector<PlannedFile> plan_files(const std::string& folder, const std::vector<TensorEntry>& tensors,
                                    int64_t max_bytes);

// Returns the parts of an array that a process writes. The processes whose devices have a block write equal parts of
// it, so that every element is written once. A block is split along its first dimension that is long enough. `blocks`
// is the block of each device, in mesh order, and `owners` the process of each device.
std::vector<IndexRanges> blocks_to_write(const std::vector<IndexRanges>& blocks, const std::vector<int>& owners,
                                         int process);

// Runs of consecutive bytes of a block in a row-major array, in increasing order. In the block's own row-major memory,
// each run follows the previous one.
class ByteRuns {
 public:
  ByteRuns(const Shape& shape, const IndexRanges& block, int64_t item_bytes);

  int64_t bytes() const { return count_ * run_bytes_; }

  // Calls f(offset in the array, offset in the block, bytes) for the bytes in [begin, end) of the array. Call with
  // increasing ranges: bytes before `begin` are skipped permanently.
  template <class F>
  void visit(int64_t begin, int64_t end, F f) {
    for (; next_ < count_; ++next_) {
      const int64_t start = begin_of(next_), stop = start + run_bytes_;
      if (start >= end) return;
      const int64_t from = std::max(start, begin), to = std::min(stop, end);
      if (from < to) f(from, next_ * run_bytes_ + (from - start), to - from);
      if (stop > end) return;
    }
  }

 private:
  struct OuterDim {
    int64_t extent, stride_bytes;
  };
  int64_t begin_of(int64_t run) const;

  std::vector<OuterDim> outer_;  // dimensions over which runs are counted, minor-most first
  int64_t first_ = 0, run_bytes_ = 0, count_ = 1, next_ = 0;
};

}  // namespace tessera::nn
