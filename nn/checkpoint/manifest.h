// JSON files of a checkpoint: its manifest, its state, Hugging Face's index, and its commit mark.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/files/safetensors_writer.h"

namespace tessera::nn {

// Bytes of a tensor that one checksum covers; the last checksum covers the rest.
inline constexpr int64_t kChunkBytes = int64_t{1} << 20;

// One tensor of a checkpoint, independent of its sharding.
struct SavedTensor {
  std::string name;  // its path: model.layers.2.mlp.up.kernel
  DType dtype = DType::float32;
  Shape shape;  // () for a scalar, which is (1) in the file because PyTorch cannot read ()
  std::optional<std::vector<std::string>> axes;  // names of its dimensions, "" for none; nullopt for a bare array
  std::string file;                              // params/model-00001-of-00002.safetensors
  std::vector<uint32_t> checksums = {};          // CRC-32C of every kChunkBytes

  TensorEntry entry() const;  // the tensor as stored in the file
  int64_t bytes() const { return entry().bytes(); }
};

// manifest.json: {"format": "tessera checkpoint", "version": 1, "step": 100, "chunk_bytes": 1048576,
//   "tensors": {name: {"dtype": "float32", "shape": [4, 8], "axes": ["vocab", "embed"], "file": "params/...",
//   "crc32c": ["0a1b2c3d", ...]}}}
constexpr int64_t kMaxStep = 1'000'000'000'000'000;  // a program may add to the step that it restores
struct Manifest {
  int64_t step = 0;                  // at most kMaxStep
  std::vector<SavedTensor> tensors;  // in the order of the tree

  std::string to_json() const;
  // Parses the text; `name` names it in errors.
  // Errors (invalid_file) "[restore] name: ..."
  //   a text that to_json cannot have written
  //   a file outside the checkpoint; sizes above 2^63 - 1; a different number of checksums than chunks
  static Manifest from_json(std::string_view text, std::string_view name);
};

// state.json: {"numbers": {path: value}, "extra": {name: any JSON}, "metrics": {name: number}}
struct SavedState {
  std::map<std::string, std::string> numbers;  // path -> JSON
  std::map<std::string, std::string> extra;    // name -> JSON
  std::map<std::string, double> metrics;

  // Returns the JSON text.
  // Errors "[save] ..."
  //   invalid_file: a value that is not JSON, or nested too deeply to be read back
  //   invalid_argument: a name that is not UTF-8
  std::string to_json() const;
  static SavedState from_json(std::string_view text, std::string_view name);  // Error (invalid_file)
};

// Hugging Face's model.safetensors.index.json: {"metadata": {"total_size": bytes}, "weight_map": {tensor: file}}.
struct SafetensorsIndex {
  int64_t total_bytes = 0;
  std::map<std::string, std::string> files;  // tensor -> file next to the index

  // Returns the index of the tensors in one folder of a checkpoint (params); it has no files if there are no tensors.
  static SafetensorsIndex of(const Manifest& manifest, std::string_view folder);
  std::string to_json() const;
  // Throws Error (invalid_file) for an invalid text, and for a file that is not next to the index. Does not read
  // total_size.
  static SafetensorsIndex from_json(std::string_view text, std::string_view name);
};

// Throws Error (invalid_argument) "[save] what "name": ..." for a name that is not UTF-8: JSON and safetensors cannot
// store it.
void check_name(std::string_view what, std::string_view name);

// Returns the text of commit_success.txt, which is written last: the checksums of manifest.json and state.json.
std::string commit_mark(std::string_view manifest, std::string_view state);

}  // namespace tessera::nn
