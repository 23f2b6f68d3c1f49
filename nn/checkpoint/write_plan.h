// Who writes what: which file holds each tensor, which part of it each process writes, and where that part's bytes lie.
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

// Puts the tensors, in their order, into files of at most `max_bytes` (a single tensor may be larger), each tensor
// whole in one file: <folder>/model-0000k-of-0000n.safetensors. The plan depends on nothing else, not on a mesh either.
std::vector<PlannedFile> plan_files(const std::string& folder, const std::vector<TensorEntry>& tensors,
                                    int64_t max_bytes);

// The parts of an array that a process writes. Every distinct block is shared equally among the processes whose devices
// hold it, cut along the first dim that is long enough, so that all together write every element once. `blocks` is what
// each device holds, in mesh order, and `owners` the process of each device.
std::vector<IndexRanges> blocks_to_write(const std::vector<IndexRanges>& blocks, const std::vector<int>& owners,
                                         int process);

// Where a block of a row-major array lies in the whole: runs of consecutive bytes, in increasing order. Each run
// follows the one before it in the block's own row-major memory.
class ByteRuns {
 public:
  ByteRuns(const Shape& shape, const IndexRanges& block, int64_t item_bytes);

  int64_t bytes() const { return count_ * run_bytes_; }

  // Calls f(offset in the whole, offset in the block, bytes) for what is in [begin, end) of the whole. Ranges must
  // follow each other: what is before `begin` is skipped for good.
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

  std::vector<OuterDim> outer_;  // the dims that runs are counted along, minor-most first
  int64_t first_ = 0, run_bytes_ = 0, count_ = 1, next_ = 0;
};

}  // namespace tessera::nn
