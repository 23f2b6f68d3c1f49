// Writes safetensors files: the layout is fixed before any byte is written, so that many processes can write at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "sharding/files/safetensors.h"

namespace tessera {

namespace detail {

// A file begins with the length of its header, a uint64; of the header the format allows 100 MB.
constexpr size_t length_bytes = 8;
constexpr uint64_t most_header_bytes = 100'000'000;

}  // namespace detail

// One tensor of a file.
struct TensorEntry {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;

  int64_t bytes() const;  // Error (bad_argument) where they are more than 2^63 - 1
};

// The layout of one safetensors file. It depends on the names, types and shapes alone: tensors with larger items come
// first, those of one item size by name, without gaps; the header is padded with spaces so that the data begins at a
// multiple of 256.
// Errors (bad_argument): a name twice, the name "__metadata__", a header of more than 100 MB.
class SafetensorsPlan {
 public:
  explicit SafetensorsPlan(std::vector<TensorEntry> tensors, const std::map<std::string, std::string>& metadata = {});

  // The file's first bytes: the header's length, the header, its padding.
  const std::string& header() const { return header_; }
  int64_t file_bytes() const { return static_cast<int64_t>(header_.size()) + data_bytes_; }
  // In the order of their bytes.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  // Where the bytes of tensors()[i] begin, counted from the start of the file.
  int64_t offset(size_t i) const { return static_cast<int64_t>(header_.size()) + begins_[i]; }

 private:
  std::vector<TensorEntry> tensors_;
  std::vector<int64_t> begins_;  // counted from the end of the header
  int64_t data_bytes_ = 0;
  std::string header_;
};

// Writes a whole file as path.partial and renames it, so that a reader finds the old file or the new one. `bytes_of` is
// called once for each tensor, in order; what it returns need only be valid until the next call.
// Errors (bad_file): the file cannot be written; (bad_argument): not as many bytes as the entry says.
void write_safetensors(const std::filesystem::path& path, const SafetensorsPlan& plan,
                       const std::function<std::span<const std::byte>(const TensorEntry&)>& bytes_of);

}  // namespace tessera
