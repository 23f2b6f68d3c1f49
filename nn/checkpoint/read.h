// Reading the arrays of a checkpoint: the memory that is made for each, and the file that fills it.
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
#include "sharding/placement/mesh_rules.h"

namespace tessera::nn {

// One array of the tree, the array that will replace it, and where its bytes are.
struct RestoreTarget {
  const Leaf* leaf;
  const SavedTensor* saved;
  std::optional<MeshRules> mesh_rules = {};  // that places it, if it is a recipe
  tessera::detail::ArrayPtr made = {};
  std::vector<ByteRuns> runs = {};      // of its distinct blocks
  std::vector<at::Tensor> blocks = {};  // and their memory; on the host if they are on another device, or have padding
  std::vector<size_t> slots = {};       // and their numbers among the tensors of `made`
  std::vector<std::pair<size_t, size_t>> copies = {};  // slot to, slot from: of replicas with memory of their own
  int64_t offset = 0;                                  // in the file
};

// Makes target.made: an array like the leaf, placed like it or, if the leaf is a recipe, by the mesh rules. Its memory
// is not filled yet; there is none where other processes have its devices. In the place of a pending sum lies a sum.
// Error (invalid_argument): the leaf differs between replicas.
void allocate(RestoreTarget& target);

// An open file of tensors, and its header.
class TensorFile {
 public:
  explicit TensorFile(const std::filesystem::path& path);

  const File& file() const { return file_; }
  // Returns the position of the tensor's first byte.
  // Error (invalid_file): the file's header and the manifest disagree about the tensor.
  int64_t offset(const SavedTensor& saved) const;

 private:
  File file_;
  SafetensorsFile header_;
};

// Reads tensors chunk by chunk, but only the chunks that overlap a block of this process.
class ChunkReader {
 public:
  explicit ChunkReader(bool verify) : verify_(verify) {}
  // Errors (invalid_file): the file cannot be read; with `verify`, a checksum differs from the saved one.
  void fill(RestoreTarget& target, const File& file);

 private:
  // The bytes that a chunk and one block share.
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
