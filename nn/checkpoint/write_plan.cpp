// Computes the files of a checkpoint, the part that each process writes, and the byte runs of blocks.
#include "nn/checkpoint/write_plan.h"

#include <fmt/format.h>

#include <map>
#include <set>

namespace tessera::nn {

std::vector<PlannedFile> plan_files(const std::string& folder, const std::vector<TensorEntry>& tensors,
                                    int64_t max_bytes) {
  std::vector<std::vector<TensorEntry>> groups;
  int64_t bytes = 0;
  for (const TensorEntry& tensor : tensors) {
    if (groups.empty() || bytes > max_bytes - tensor.bytes()) {
      groups.emplace_back();
      bytes = 0;
    }
    groups.back().push_back(tensor);
    bytes += tensor.bytes();
  }
  std::vector<PlannedFile> files;
  for (const std::vector<TensorEntry>& group : groups)
    files.push_back({fmt::format("{}/model-{:05}-of-{:05}.safetensors", folder, files.size() + 1, groups.size()),
                     SafetensorsPlan(group, {{"format", "pt"}})});
  return files;
}

namespace {

// Returns part number `part` of `parts` of a block. If the block is too small to be split, part 0 gets all of it.
IndexRanges share_of(IndexRanges block, int64_t part, int64_t parts) {
  for (auto& [start, stop] : block) {
    const int64_t extent = stop - start;
    if (extent < parts) continue;
    stop = start + extent * (part + 1) / parts;
    start += extent * part / parts;
    return block;
  }
  return part == 0 || block.empty() ? block : IndexRanges();
}

bool is_empty(const IndexRanges& block) {
  return std::any_of(block.begin(), block.end(), [](const auto& range) { return range.first == range.second; });
}

}  // namespace

std::vector<IndexRanges> blocks_to_write(const std::vector<IndexRanges>& blocks, const std::vector<int>& owners,
                                         int process) {
  std::map<IndexRanges, std::set<int>> holders;
  for (size_t place = 0; place < blocks.size(); ++place) holders[blocks[place]].insert(owners[place]);
  std::vector<IndexRanges> mine;
  for (const auto& [block, processes] : holders) {
    const auto found = processes.find(process);
    if (found == processes.end() || is_empty(block)) continue;
    const auto part = std::distance(processes.begin(), found);
    if (block.empty() && part > 0) continue;  // a scalar is written by its first holder
    const IndexRanges share = share_of(block, part, static_cast<int64_t>(processes.size()));
    if (block.empty() || !share.empty()) mine.push_back(share);
  }
  return mine;
}

ByteRuns::ByteRuns(const Shape& shape, const IndexRanges& block, int64_t item_bytes) : run_bytes_(item_bytes) {
  int64_t stride = item_bytes;
  bool consecutive = true;  // all dimensions so far are complete
  for (size_t d = shape.size(); d-- > 0;) {
    const int64_t extent = block[d].second - block[d].first;
    first_ += block[d].first * stride;
    if (consecutive) {
      run_bytes_ *= extent;
      consecutive = extent == shape[d];
    } else {
      outer_.push_back({extent, stride});
      count_ *= extent;
    }
    stride *= shape[d];
  }
  if (run_bytes_ == 0) count_ = 0;
}

int64_t ByteRuns::begin_of(int64_t run) const {
  int64_t offset = first_;
  for (const OuterDim& dim : outer_) {
    offset += run % dim.extent * dim.stride_bytes;
    run /= dim.extent;
  }
  return offset;
}

}  // namespace tessera::nn
