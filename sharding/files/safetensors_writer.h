// Writes safetensors files. The layout is fixed before any byte is written, so that many processes can write at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sharding/files/safetensors.h"

namespace tessera {

namespace detail {

// A file begins with the length of its header, a uint64. The format allows headers of up to 100 MB.
constexpr size_t length_bytes = 8;
constexpr uint64_t max_header_bytes = 100'000'000;
// Returns "a name of 5000 bytes, "aaa...", expected at most 4096." for a tensor name of more than 4 KiB; else an empty
// text. Names of models have about 60 bytes.
std::string excess_of_name(std::string_view name);

// The names of element types in the format.
inline constexpr std::pair<std::string_view, DType> safetensors_types[] = {
    {"F64", DType::float64}, {"F32", DType::float32}, {"F16", DType::float16}, {"BF16", DType::bfloat16},
    {"I64", DType::int64},   {"I32", DType::int32},   {"I16", DType::int16},   {"I8", DType::int8},
    {"U8", DType::uint8},    {"BOOL", DType::boolean}};

// Returns the bytes of a tensor; std::nullopt if they exceed 2^63 - 1.
std::optional<int64_t> byte_count(DType dtype, const Shape& shape);

}  // namespace detail

// One tensor of a file.
struct TensorEntry {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;

  int64_t bytes() const;  // throws invalid_argument if they exceed 2^63 - 1
};

namespace detail {
using BytesOfTensor = std::function<std::span<const std::byte>(const TensorEntry&)>;
}

// The layout of one safetensors file, which depends only on names, types and shapes. Tensors with larger items come
// first; tensors of one item size are ordered by name, without gaps. The header is padded with spaces so that the data
// begins at a multiple of 256.
// Errors (invalid_argument): a duplicate name, the name "__metadata__", a name of more than 4 KiB, more than 64
// dimensions, a header of more than 100 MB.
class SafetensorsPlan {
 public:
  explicit SafetensorsPlan(std::vector<TensorEntry> tensors, const std::map<std::string, std::string>& metadata = {});

  // Returns the file's first bytes: the header's length, the header, its padding.
  const std::string& header() const { return header_; }
  int64_t file_bytes() const { return static_cast<int64_t>(header_.size()) + data_bytes_; }
  // Returns the tensors in the order of their bytes.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  // Returns the offset of the bytes of tensors()[i] from the start of the file.
  int64_t offset(size_t i) const { return static_cast<int64_t>(header_.size()) + begins_[i]; }

 private:
  std::vector<TensorEntry> tensors_;
  std::vector<int64_t> begins_;  // counted from the end of the header
  int64_t data_bytes_ = 0;
  std::string header_;
};

// Writes a file as path.partial and renames it, so that readers see the old file or the new one. Calls `bytes_of` once
// for each tensor, in order; its result must be valid until the next call.
// Errors
//   invalid_file: the file cannot be written
//   invalid_argument: a different number of bytes than the entry's
void write_safetensors(const std::filesystem::path& path, const SafetensorsPlan& plan,
                       const detail::BytesOfTensor& bytes_of);

namespace detail {

// Writes a file of `file_bytes` with a header and tensors at offsets, as write_safetensors does. `verb` names the
// caller in errors.
void write_tensor_file(const std::filesystem::path& path, const char* verb, std::string_view header,
                       const std::vector<TensorEntry>& tensors, std::span<const int64_t> offsets, int64_t file_bytes,
                       const BytesOfTensor& bytes_of);

}  // namespace detail

}  // namespace tessera
