// Reads safetensors files: names, types and shapes, and the bytes of each tensor straight from the mapped file.
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

// What a file says about one tensor.
struct TensorInfo {
  DType dtype = DType::float32;
  Shape shape;        // {} is a scalar
  int64_t begin = 0;  // bytes [begin, end), counted from the end of the header
  int64_t end = 0;
};

// A safetensors file, checked when it is opened and mapped as long as a copy of this handle lives. Opening reads only
// the header, so a file larger than memory is fine; copies of the handle are cheap.
//
// The format: 8 bytes of header length N (little endian), N bytes of JSON, the data. The header maps each name to
// {"dtype", "shape", "data_offsets": [begin, end]}, and "__metadata__" to an object of strings; other fields of an
// entry are passed over. Values are row-major and little endian.
// Source: https://github.com/huggingface/safetensors (README "Format", and the checks of its reader).
//
// Element types: F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL. Any other is refused when the file is opened, since then its
// sizes cannot be checked. The bytes of a BOOL are not looked at: whoever reads them must expect more than 0 and 1.
class SafetensorsFile {
 public:
  // Every malformed file is an Error (invalid_file) "[safetensors] path: given, expected, what to do": one that is
  // missing, not a regular file or too short; a header longer than 100 MB or than the file, that is not JSON starting
  // with '{', or that names a tensor twice, or by more than 4 KiB; an unknown type; a shape or an offset that is not a
  // whole number from 0 on; more than 64 dimensions; sizes that overflow or differ from shape times item size; bytes of
  // the data that belong to no tensor or to two.
  static SafetensorsFile open(const std::filesystem::path& path);
  static SafetensorsFile of(const File& opened);

  const std::filesystem::path& path() const;
  int64_t data_offset() const;  // in the file, of the first byte behind the header

  // In the order of their bytes in the file; tensors without bytes at one offset are in the order of their names.
  const std::vector<std::string>& names() const;

  bool contains(std::string_view name) const;

  // Error (invalid_file) if the file has no such tensor; the same for bytes(), array() and read().
  const TensorInfo& info(std::string_view name) const;

  // The values, valid as long as a copy of this handle lives. They may begin at any address, since writers need not
  // align the header: copy them (std::memcpy, or read) before use as numbers. A file that another program makes
  // shorter in the meantime ends this one with a bus error, as with every mapped file.
  std::span<const std::byte> bytes(std::string_view name) const;

  // Error (invalid_file) if the tensor is a BOOL, and one of these bytes of it is other than 0 and 1.
  void check_values(std::string_view name, std::span<const std::byte> values) const;

  // The tensor as an array on no mesh; its values are copied. Errors: those of check_values.
  Array array(std::string_view name) const;

  // Copies the values to `out`, a buffer of at least info(name).end - info(name).begin bytes.
  void read(std::string_view name, void* out) const;

  // The strings under "__metadata__"; empty if there are none.
  const std::map<std::string, std::string>& metadata() const;

 private:
  struct Contents;
  explicit SafetensorsFile(std::shared_ptr<const Contents> contents) : contents_(std::move(contents)) {}
  std::shared_ptr<const Contents> contents_;
};

}  // namespace tessera
