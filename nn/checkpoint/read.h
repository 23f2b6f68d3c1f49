// Reads the arrays of a checkpoint: allocates memory for each, and fills it from its file.
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

// An array to restore: the array of the tree, its replacement, and the position of its bytes in the file.
struct RestoreTarget {
  const Leaf* leaf;
  const SavedTensor* saved;
  std::optional<MeshRules> mesh_rules = {};  // mesh rules that place it if it is a lazy initializer
  tessera::detail::ArrayPtr made = {};
  std::vector<ByteRuns> runs = {};      // runs of its distinct blocks
  std::vector<at::Tensor> blocks = {};  // memory of the blocks; on the host if they are on another device or padded
  std::vector<size_t> slots = {};       // numbers of the blocks among the tensors of `made`
  std::vector<std::pair<size_t, size_t>> copies = {};  // (to, from): replicas that have their own memory
  int64_t offset = 0;                                  // position of its first byte in the file
};

// Allocates target.made: an array with the leaf's shape, type and sharding. The mesh rules give the sharding of a lazy
// initializer. The memory is not filled yet; there is none if the array's devices belong to other processes. A partial
// sum becomes a reduced array. Error (invalid_argument): the leaf differs between replicas.
void allocate(RestoreTarget& target);

// An open file of tensors and its header.
class TensorFile {
 public:
  explicit TensorFile(const std::filesystem::path& path);

  const File& file() const { return file_; }
  // Returns the position of the tensor's first byte. Error (invalid_file): the header of the file contradicts the
  // manifest.
  int64_t offset(const SavedTensor& saved) const;

 private:
  File file_;
  SafetensorsFile header_;
};

// Reads tensors chunk by chunk, skipping chunks that overlap no block of this process.
class ChunkReader {
 public:
  explicit ChunkReader(bool verify) : verify_(verify) {}
  // Fills the blocks of the target with their bytes of the file. Errors (invalid_file): the file cannot be read; with
  // `verify`, a checksum differs from the saved one.
  void fill(RestoreTarget& target, const File& file);

 private:
  // Bytes that a chunk and one block share.
  struct Overlap {
    int64_t offset;  // position of the first byte in the tensor
    std::span<std::byte> bytes;
  };

  void read(const RestoreTarget& target, const File& file, size_t chunk, int64_t begin, int64_t end);
  void check(const RestoreTarget& target, size_t chunk, std::span<const std::byte> bytes) const;

  bool verify_;
  std::vector<std::byte> staging_;
  std::vector<Overlap> overlaps_;
};

}  // namespace tessera::nn
