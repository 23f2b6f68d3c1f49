// Reads safetensors files: names, types and shapes, and the bytes of tensors directly from the mapped file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/placement/dtype.h"
#include "sharding/placement/shape.h"

namespace tessera {

class File;

class Array;

// The header's entry for one tensor.
struct TensorInfo {
  DType dtype = DType::float32;
  Shape shape;        // {} for a scalar
  int64_t begin = 0;  // bytes [begin, end), counted from the end of the header
  int64_t end = 0;
};

// A safetensors file, which is checked when it is opened, and mapped while a copy of this handle exists. Opening reads
// only the header, so a file may be larger than memory. Copies of the handle are cheap.
//
// The format: 8 bytes of header length N (little endian), N bytes of JSON, the data. The header maps each name to
// {"dtype", "shape", "data_offsets": [begin, end]}, and "__metadata__" to an object of strings; other fields of an
// entry are ignored. Values are row-major and little endian.
// Source: https://github.com/huggingface/safetensors (README "Format", and the checks of its reader).
//
// Element types: F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL. A file may have tensors of the format's other types (F8_E4M3,
// U16, ...), but they cannot be read. Files with an unknown type are rejected, because its size cannot be checked. The
// bytes of a BOOL are not checked: callers that read them must handle values other than 0 and 1.
class SafetensorsFile {
 public:
  // Opens a file. Throws invalid_file, "[safetensors] path: given, expected, what to do", for each malformed file:
  // - missing, not a regular file, or too short
  // - a header longer than 100 MB or than the file, or one that is not JSON starting with '{'
  // - a tensor name that appears twice, or has more than 4 KiB
  // - an unknown element type
  // - a shape or offset that is not an integer of at least 0, or more than 64 dimensions
  // - sizes that overflow, or that differ from shape times item size
  // - bytes of the data that belong to no tensor or to two
  static SafetensorsFile open(const std::filesystem::path& path);
  static SafetensorsFile of(const File& opened);

  const std::filesystem::path& path() const;
  int64_t data_offset() const;  // offset in the file of the first byte after the header

  // Returns the names in the order of their bytes in the file; tensors without bytes at one offset are ordered by name.
  const std::vector<std::string>& names() const;

  bool contains(std::string_view name) const;

  // Returns the entry of a tensor. Throws invalid_file if the file has no such tensor, or if no Array has its element
  // type, as do bytes(), array() and read().
  const TensorInfo& info(std::string_view name) const;

  // Returns the values, which are valid while a copy of this handle exists. They may begin at any address, because
  // writers need not align the header: copy them (std::memcpy, or read) before you use them as numbers. If another
  // program truncates the file meanwhile, reading them terminates this program with a bus error, as for each mapped
  // file.
  std::span<const std::byte> bytes(std::string_view name) const;

  // Throws invalid_file if the tensor is a BOOL and one of these bytes of it is neither 0 nor 1.
  void check_values(std::string_view name, std::span<const std::byte> values) const;

  // Returns the tensor as an uncommitted array with a copy of its values. Throws the errors of check_values.
  Array array(std::string_view name) const;

  // Copies the values to `out`, a buffer of at least info(name).end - info(name).begin bytes.
  void read(std::string_view name, void* out) const;

  // Returns the strings under "__metadata__"; empty if there are none.
  const std::map<std::string, std::string>& metadata() const;

 private:
  struct Contents;
  const Contents& contents() const;  // throws invalid_argument if this handle was moved from
  explicit SafetensorsFile(std::shared_ptr<const Contents> contents) : contents_(std::move(contents)) {}
  std::shared_ptr<const Contents> contents_;
};

}  // namespace tessera
