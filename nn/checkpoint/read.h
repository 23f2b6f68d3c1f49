// One array of a checkpoint on its way into a tree: its future memory, and the file that fills it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "nn/checkpoint/manifest.h"
#include "nn/checkpoint/write_plan.h"
#include "nn/tree/tree.h"
#include "sharding/array/array_impl.h"
#include "sharding/files/file.h"
#include "sharding/files/safetensors.h"
#include "sharding/placement/layout.h"

namespace tessera::nn {

// One array of the tree, its future, and where its bytes are.
struct RestoreTarget {
  const Leaf* leaf;
  const SavedTensor* saved;
  tessera::detail::ArrayPtr made = {};
  std::vector<ByteRuns> runs = {};                     // of its distinct blocks
  std::vector<at::Tensor> blocks = {};                 // and their memory, the host's where they lie elsewhere
  std::vector<size_t> slots = {};                      // and which of the array's tensors they are
  std::vector<std::pair<size_t, size_t>> copies = {};  // private replicas: slot to, slot from
  int64_t offset = 0;                                  // in the file
};

// An array like the leaf, placed as it is or, of a recipe, as the layout says, with memory that is not filled yet.
// Errors (bad_argument): the leaf is a pending sum, or differs between replicas.
void make_room(RestoreTarget& target, const std::optional<Layout>& layout);

// A file, open, whose header says what the manifest says.
class TensorFile {
 public:
  explicit TensorFile(const std::filesystem::path& path);

  const File& file() const { return file_; }
  // Where the tensor's bytes begin. Error (bad_file): the file holds another one.
  int64_t offset(const SavedTensor& saved) const;

 private:
  SafetensorsFile header_;
  File file_;
  int64_t data_;
};

// Reads tensors chunk by chunk, of which only those that a block here has a part of.
class ChunkReader {
 public:
  explicit ChunkReader(bool verify) : verify_(verify) {}
  // Errors (bad_file): it cannot be read; with `verify`, another checksum than was saved.
  void fill(RestoreTarget& target, const File& file);

 private:
  // What a chunk holds of some block.
  struct Overlap {
    int64_t offset;  // in the tensor
    std::span<std::byte> bytes;
  };

  void read(const RestoreTarget& target, const File& file, size_t chunk, int64_t begin, int64_t end);
  void check(const RestoreTarget& target, size_t chunk, std::span<const std::byte> bytes) const;

  bool verify_;
  std::vector<std::byte> staging_;
  std::vector<Overlap> overlaps_;
};

}  // namespace tessera::nn
