// Lays out and writes safetensors files.
#include "sharding/files/safetensors_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstring>
#include <tuple>

#include "sharding/base/fail.h"
#include "sharding/files/file.h"
#include "sharding/files/json_part.h"

namespace tessera {
namespace {

namespace json = boost::json;
using detail::length_bytes;
using detail::max_header_bytes;

constexpr size_t alignment = 256;

std::string_view spelling_of(DType dtype) {
  for (const auto& [spelling, type] : detail::safetensors_types)
    if (type == dtype) return spelling;
  fail(ErrorKind::dtype_mismatch, "safetensors", "an element type that an Array cannot have.");
}

bool lies_before(const TensorEntry& a, const TensorEntry& b) {
  return std::tuple(-item_size(a.dtype), std::string_view(a.name)) <
         std::tuple(-item_size(b.dtype), std::string_view(b.name));
}

void check_tensors(const std::vector<TensorEntry>& tensors) {
  std::vector<std::string_view> names;
  for (const TensorEntry& tensor : tensors) names.push_back(tensor.name);
  for (const auto& [name, dtype, shape] : tensors)
    if (shape.size() > detail::JsonPart::max_dims)
      fail(ErrorKind::invalid_argument, "safetensors", "{}: {} dimensions, expected at most {}. Reshape it.", name,
           shape.size(), detail::JsonPart::max_dims);
  for (const std::string_view name : names)
    if (const std::string excess = detail::excess_of_name(name); !excess.empty())
      fail(ErrorKind::invalid_argument, "safetensors", "{} Shorten it.", excess);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    fail(ErrorKind::invalid_argument, "safetensors", "two tensors are called \"{}\". Give each its own name.", *twice);
  if (std::binary_search(names.begin(), names.end(), "__metadata__"))
    fail(ErrorKind::invalid_argument, "safetensors",
         "no tensor can be called \"__metadata__\", which the format reserves.");
}

std::string framed(std::string header) {
  const size_t used = length_bytes + header.size();
  header.append((alignment - used % alignment) % alignment, ' ');
  if (header.size() > max_header_bytes)
    fail(ErrorKind::invalid_argument, "safetensors",
         "a header of {} bytes, the format allows {}. Write the tensors to several files.", header.size(),
         max_header_bytes);
  const uint64_t length = header.size();
  std::string bytes(length_bytes, '\0');
  std::memcpy(bytes.data(), &length, length_bytes);
  return bytes + header;
}

}  // namespace

std::string detail::excess_of_name(std::string_view name) {
  constexpr size_t most = 4096;
  if (name.size() <= most) return "";
  return fmt::format("a name of {} bytes, \"{}...\", expected at most {}.", name.size(), name.substr(0, 60), most);
}

std::optional<int64_t> detail::byte_count(DType dtype, const Shape& shape) {
  int64_t size = 1;
  bool overflow = false;
  for (int64_t extent : shape) overflow |= __builtin_mul_overflow(size, extent, &size);
  overflow |= __builtin_mul_overflow(size, item_size(dtype), &size);
  return overflow ? std::nullopt : std::optional(size);
}

int64_t TensorEntry::bytes() const {
  if (const auto size = detail::byte_count(dtype, shape)) return *size;
  fail(ErrorKind::invalid_argument, "safetensors", "{}: the shape {} has more than 2^63 - 1 bytes.", name,
       to_string(shape));
}

SafetensorsPlan::SafetensorsPlan(std::vector<TensorEntry> tensors, const std::map<std::string, std::string>& metadata)
    : tensors_(std::move(tensors)) {
  check_tensors(tensors_);
  std::sort(tensors_.begin(), tensors_.end(), lies_before);
  json::object header;
  if (!metadata.empty()) {
    json::object strings;
    for (const auto& [key, text] : metadata) strings.emplace(key, text);
    header.emplace("__metadata__", std::move(strings));
  }
  for (const TensorEntry& tensor : tensors_) {
    const int64_t begin = data_bytes_;
    begins_.push_back(begin);
    data_bytes_ += tensor.bytes();
    header.emplace(tensor.name, json::object{{"dtype", spelling_of(tensor.dtype)},
                                             {"shape", json::array(tensor.shape.begin(), tensor.shape.end())},
                                             {"data_offsets", json::array{begin, data_bytes_}}});
  }
  header_ = framed(json::serialize(header));
}

void detail::write_tensor_file(const std::filesystem::path& path, const char* verb, std::string_view header,
                               const std::vector<TensorEntry>& tensors, std::span<const int64_t> offsets,
                               int64_t file_bytes, const BytesOfTensor& bytes_of) {
  const std::filesystem::path partial = path.string() + ".partial";
  try {
    const File file = File::create(partial, verb);
    file.reserve(file_bytes);
    file.write_at(std::as_bytes(std::span(header)), 0);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const TensorEntry& tensor = tensors[i];
      const std::span<const std::byte> bytes = bytes_of(tensor);
      if (static_cast<int64_t>(bytes.size()) != tensor.bytes())
        fail(ErrorKind::invalid_argument, verb, "{}: {} bytes given for {} {}, expected {}.", tensor.name, bytes.size(),
             name_of(tensor.dtype), to_string(tensor.shape), tensor.bytes());
      file.write_at(bytes, offsets[i]);
    }
    file.sync();
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(partial, ignored);
    throw;
  }
  move_into_place(partial, path, verb);
}

void write_safetensors(const std::filesystem::path& path, const SafetensorsPlan& plan,
                       const detail::BytesOfTensor& bytes_of) {
  std::vector<int64_t> offsets;
  for (size_t i = 0; i < plan.tensors().size(); ++i) offsets.push_back(plan.offset(i));
  detail::write_tensor_file(path, "safetensors", plan.header(), plan.tensors(), offsets, plan.file_bytes(), bytes_of);
}

}  // namespace tessera
