// Lays out and writes GGUF files.
#include "nn/models/gguf_file.h"

#include <algorithm>
#include <type_traits>

#include "sharding/base/fail.h"

namespace tessera::nn::detail {

namespace {

// The format's code of a type of values: u32, i32, f32, bool and string.
template <class T>
constexpr uint32_t value_type = std::is_same_v<T, uint32_t>  ? 4
                                : std::is_same_v<T, int32_t> ? 5
                                : std::is_same_v<T, float>   ? 6
                                : std::is_same_v<T, bool>    ? 7
                                                             : 8;
constexpr uint32_t array_type = 9;

class GgufHeader {
 public:
  template <class T>
  void add(const T& number) {
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  void add(const std::string& text) {
    add(uint64_t{text.size()});
    bytes_ += text;
  }
  template <class T>
  void add_value(const T& value) {
    add(value_type<T>), add(value);
  }
  template <class T>
  void add_value(const std::vector<T>& items) {
    add(array_type), add(value_type<T>), add(uint64_t{items.size()});
    for (const T& item : items) add(item);
  }
  std::string& bytes() { return bytes_; }

 private:
  std::string bytes_ = "GGUF";
};

// The header's end and each tensor are padded to the format's default alignment.
int64_t padded_size(int64_t size) { return (size + 31) / 32 * 32; }

}  // namespace

uint32_t gguf_type(DType dtype) {
  if (dtype == DType::float32) return 0;
  if (dtype == DType::float16) return 1;
  if (dtype == DType::bfloat16) return 30;
  fail(ErrorKind::invalid_argument, gguf_verb, "{} given, expected float16, bfloat16 or float32.", name_of(dtype));
}

void write_gguf(const std::filesystem::path& path, const GgufMetadata& metadata,
                const std::vector<TensorEntry>& tensors, const tessera::detail::BytesOfTensor& bytes_of) {
  GgufHeader header;
  header.add(uint32_t{3}), header.add(uint64_t{tensors.size()}), header.add(uint64_t{metadata.size()});
  for (const auto& [key, value] : metadata) {
    header.add(key);
    std::visit([&](const auto& v) { header.add_value(v); }, value);
  }
  int64_t size = 0;
  std::vector<int64_t> offsets;
  for (const TensorEntry& tensor : tensors) {
    header.add(tensor.name), header.add(static_cast<uint32_t>(tensor.shape.size()));
    std::for_each(tensor.shape.rbegin(), tensor.shape.rend(), [&](int64_t extent) { header.add(extent); });
    header.add(gguf_type(tensor.dtype)), header.add(size);
    offsets.push_back(size);
    size += padded_size(tensor.bytes());
  }
  const int64_t begin = padded_size(static_cast<int64_t>(header.bytes().size()));
  header.bytes().resize(static_cast<size_t>(begin));
  for (int64_t& offset : offsets) offset += begin;
  tessera::detail::write_tensor_file(path, gguf_verb, header.bytes(), tensors, offsets, begin + size, bytes_of);
}

}  // namespace tessera::nn::detail
