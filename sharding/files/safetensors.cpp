// The safetensors reader: maps the file, reads the header, and checks that the tensors tile the data.
#include "sharding/files/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <boost/json/value.hpp>
#include <cerrno>
#include <cstring>
#include <functional>
#include <tuple>
#include <utility>

#include "sharding/array/array.h"
#include "sharding/base/error.h"
#include "sharding/base/fail.h"
#include "sharding/files/file.h"
#include "sharding/files/json.h"
#include "sharding/files/json_part.h"
#include "sharding/files/safetensors_writer.h"

namespace tessera {
namespace {

namespace json = boost::json;
using detail::JsonPart;
using detail::length_bytes;
using detail::max_header_bytes;

static_assert(std::endian::native == std::endian::little,
              "safetensors files are little-endian and read without conversion");

[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view message) {
  fail(ErrorKind::invalid_file, "safetensors", "{}: {}", path.string(), message);
}

// --- the header ---

// Types of the format that no Array has, with their bits: Dtype of safetensors 0.8.
constexpr std::pair<std::string_view, int64_t> other_types[] = {
    {"F4", 4},      {"F6_E2M3", 6},     {"F6_E3M2", 6}, {"F8_E4M3", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2", 8},
    {"F8_E8M0", 8}, {"F8_E5M2FNUZ", 8}, {"U16", 16},    {"U32", 32},    {"U64", 64},        {"C64", 64}};

struct Tensor {
  TensorInfo info;
  std::string_view other_type;  // name of a type that no Array has
};
using Entry = std::pair<std::string, Tensor>;

std::string known_types() {
  std::vector<std::string_view> known;
  for (const auto& [spelling, dtype] : detail::safetensors_types) known.push_back(spelling);
  return fmt::format("{}", fmt::join(known, " "));
}

// Sets the type and returns the bits of an element.
int64_t read_type(const JsonPart& part, Tensor& tensor) {
  const std::string given = part.text();
  for (const auto& [spelling, dtype] : detail::safetensors_types)
    if (spelling == given) return tensor.info.dtype = dtype, 8 * item_size(dtype);
  for (const auto& [spelling, bits] : other_types)
    if (spelling == given) return tensor.other_type = spelling, bits;
  part.refuse(
      fmt::format("the type \"{}\" is not supported. Expected one of {}: convert the tensor.", given, known_types()));
}

Tensor tensor_in(const JsonPart& entry) {
  Tensor tensor;
  const int64_t bits = read_type(entry.at("dtype"), tensor);
  TensorInfo& info = tensor.info;
  info.shape = entry.at("shape").shape();
  const JsonPart offsets = entry.at("data_offsets");
  if (offsets.length() != 2) offsets.refuse_type("[begin, end]");
  info.begin = offsets.item(0).count();
  info.end = offsets.item(1).count();
  int64_t bytes = 0;
  const std::optional<int64_t> elements = detail::byte_count(DType::uint8, info.shape);
  if (!elements || __builtin_mul_overflow(*elements / 8, bits, &bytes) ||
      __builtin_add_overflow((*elements % 8 * bits + 7) / 8, bytes, &bytes))
    entry.at("shape").refuse_type("a shape of at most 2^63 - 1 bytes");
  if (info.end < info.begin || info.end - info.begin != bytes)
    entry.refuse(fmt::format(
        "data_offsets [{}, {}] do not hold the {} bytes of {} with shape {}. Write the file again.", info.begin,
        info.end, bytes, tensor.other_type.empty() ? name_of(info.dtype) : tensor.other_type, to_string(info.shape)));
  return tensor;
}

// Returns a copy of the header's text, because a mapped file could change while it is parsed. Throws if the file is too
// short for it, or if its length exceeds the limit or the file.
std::string header_of(const std::filesystem::path& path, std::span<const std::byte> file) {
  const auto refuse_start = [&](std::string_view found) {
    refuse(path, fmt::format("{}. Is the file complete, and a safetensors file?", found));
  };
  if (file.size() < length_bytes)
    refuse_start(fmt::format("the file has {} bytes, expected 8 for the header's length", file.size()));
  uint64_t length = 0;
  std::memcpy(&length, file.data(), length_bytes);
  const std::string_view start(reinterpret_cast<const char*>(file.data()), file.size());
  if (start.starts_with(git_lfs_begin)) refuse(path, git_lfs_advice);
  if (length > max_header_bytes)
    refuse_start(fmt::format("the header's length is {}, expected at most {} bytes", length, max_header_bytes));
  if (length > file.size() - length_bytes)
    refuse_start(
        fmt::format("the header's length is {}, but only {} bytes follow", length, file.size() - length_bytes));
  std::string text(reinterpret_cast<const char*>(file.data()) + length_bytes, length);
  if (!text.starts_with('{')) refuse_start("the header does not begin with '{'");
  return text;
}

// Throws for gaps, overlaps and a wrong end of the data. The entries are in the order of their bytes.
void check_tiling(const std::filesystem::path& path, const std::vector<Entry>& entries, int64_t data_size) {
  int64_t at = 0;
  for (const auto& [name, tensor] : entries) {
    const TensorInfo& info = tensor.info;
    if (info.begin != at)
      refuse(path, fmt::format("tensor \"{}\" begins at byte {} of the data, expected {}: {}. Write the file again.",
                               name, info.begin, at, info.begin < at ? "tensors overlap" : "there is a hole"));
    at = info.end;
  }
  if (at != data_size)
    refuse(
        path,
        fmt::format("the tensors have {} bytes, the file has {} bytes of data. Expected as many. Is the file complete?",
                    at, data_size));
}

bool before(const Entry& a, const Entry& b) {
  const TensorInfo &first = a.second.info, &second = b.second.info;
  return std::tie(first.begin, first.end, a.first) < std::tie(second.begin, second.end, b.first);
}

std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t shown = 8;
  const std::span<const std::string> first(names.data(), std::min(shown, names.size()));
  return fmt::format("{}{}", fmt::join(first, ", "), names.size() > shown ? ", ..." : "");
}

}  // namespace

struct SafetensorsFile::Contents {
  explicit Contents(const std::filesystem::path& file) : path(file) {}

  std::filesystem::path path;
  std::shared_ptr<const void> map;
  size_t data_offset = 0;
  std::span<const std::byte> data;
  std::vector<std::string> names;
  std::map<std::string, Tensor, std::less<>> tensors;
  std::map<std::string, std::string> metadata;
};

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  const File file = File::try_open(path, "safetensors");
  if (!file.is_open())
    refuse(path, fmt::format("the file cannot be opened ({}). Check the path.", std::strerror(errno)));
  return of(file);
}

SafetensorsFile SafetensorsFile::of(const File& opened) {
  const std::filesystem::path& path = opened.path();
  if (!opened.is_regular())
    refuse(path, "this is not a regular file. Give the path of one file that ends in .safetensors.");
  const auto size = static_cast<size_t>(opened.size());
  auto contents = std::make_shared<Contents>(path);
  contents->map = opened.map(size);
  if (size > 0 && !contents->map)
    refuse(path, fmt::format("the file cannot be mapped ({}). Copy it to a local disk.", std::strerror(errno)));
  const std::span<const std::byte> file(static_cast<const std::byte*>(contents->map.get()), size);
  const std::string text = header_of(path, file);
  contents->data_offset = length_bytes + text.size();
  contents->data = file.subspan(contents->data_offset);

  const json::value header = parse_json(text, "safetensors", path.string() + ": header");
  std::vector<Entry> entries;
  for (const auto& [key, entry] : header.get_object()) {
    const std::string_view name = key;
    if (const std::string excess = detail::excess_of_name(name); !excess.empty())
      refuse(path, excess + " Rename the tensor.");
    if (name == "__metadata__")
      for (const auto& [key, text] : JsonPart{entry, path.string() + ": __metadata__", "safetensors"}.members())
        contents->metadata.emplace(key, text.text());
    else
      entries.emplace_back(name,
                           tensor_in({entry, fmt::format("{}: tensor \"{}\"", path.string(), name), "safetensors"}));
  }
  std::sort(entries.begin(), entries.end(), before);
  check_tiling(path, entries, static_cast<int64_t>(contents->data.size()));

  for (Entry& entry : entries) contents->names.push_back(entry.first);
  contents->tensors.insert(entries.begin(), entries.end());
  return SafetensorsFile(std::move(contents));
}

const SafetensorsFile::Contents& SafetensorsFile::contents() const {
  return detail::held(contents_, "safetensors", "file");
}
const std::filesystem::path& SafetensorsFile::path() const { return contents().path; }
int64_t SafetensorsFile::data_offset() const { return static_cast<int64_t>(contents().data_offset); }
const std::vector<std::string>& SafetensorsFile::names() const { return contents().names; }
const std::map<std::string, std::string>& SafetensorsFile::metadata() const { return contents().metadata; }
bool SafetensorsFile::contains(std::string_view name) const { return contents().tensors.contains(name); }

const TensorInfo& SafetensorsFile::info(std::string_view name) const {
  const auto found = contents().tensors.find(name);
  if (found == contents().tensors.end())
    refuse(path(), fmt::format("there is no tensor \"{}\". Expected one of the {}: {}.", name, names().size(),
                               some_of(names())));
  if (const std::string_view type = found->second.other_type; !type.empty())
    refuse(path(), fmt::format("\"{}\" has elements of {}, expected one of {}. Convert the tensor.", name, type,
                               known_types()));
  return found->second.info;
}

std::span<const std::byte> SafetensorsFile::bytes(std::string_view name) const {
  const TensorInfo& tensor = info(name);
  return contents_->data.subspan(static_cast<size_t>(tensor.begin), static_cast<size_t>(tensor.end - tensor.begin));
}

void SafetensorsFile::check_values(std::string_view name, std::span<const std::byte> values) const {
  if (info(name).dtype == boolean && std::ranges::any_of(values, [](std::byte b) { return b > std::byte{1}; }))
    refuse(path(), fmt::format("\"{}\" is a BOOL with bytes other than 0 and 1. Write it again.", name));
}

Array SafetensorsFile::array(std::string_view name) const {
  const TensorInfo& tensor = info(name);
  const std::span<const std::byte> values = bytes(name);
  check_values(name, values);
  return array_from_bytes(values, tensor.dtype, tensor.shape);
}

void SafetensorsFile::read(std::string_view name, void* out) const {
  const std::span<const std::byte> values = bytes(name);
  if (!values.empty()) std::memcpy(out, values.data(), values.size());
}

}  // namespace tessera
