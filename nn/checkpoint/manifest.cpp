// The JSON of a checkpoint, written in one way and read strictly.
#include "nn/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>
#include <boost/json/value.hpp>

#include "sharding/diagnostics/fail.h"
#include "sharding/diagnostics/parse_number.h"
#include "sharding/files/crc32c.h"
#include "sharding/files/json.h"

namespace tessera::nn {
namespace {

namespace json = boost::json;

constexpr std::string_view kFormat = "tessera checkpoint";
constexpr int64_t kVersion = 1;
constexpr int kMostLevels = 30;  // of a value in state.json: a reader takes 32, and the value lies two levels deep

// One value of a text; every complaint says whose, and where in it.
class Reader {
 public:
  Reader(const json::value& value, std::string_view text, std::string where)
      : value_(value), text_(text), where_(std::move(where)) {}

  [[noreturn]] void refuse(std::string_view expected) const {
    std::string given = json::serialize(value_);
    if (given.size() > 60) given = given.substr(0, 60) + "...";
    fail(ErrorKind::bad_file, "restore", "{}: {}: {} given, expected {}. Was the file changed?", text_, where_, given,
         expected);
  }
  const json::object& object() const {
    if (!value_.is_object()) refuse("an object");
    return value_.get_object();
  }
  const json::array& array() const {
    if (!value_.is_array()) refuse("a list");
    return value_.get_array();
  }
  std::string string() const {
    if (!value_.is_string()) refuse("a string");
    return std::string(value_.get_string());
  }
  int64_t whole_number() const {
    if (!value_.is_int64() || value_.get_int64() < 0) refuse("a whole number from 0 on");
    return value_.get_int64();
  }
  bool is_null() const { return value_.is_null(); }
  const json::value& value() const { return value_; }

  Reader operator[](std::string_view key) const {
    const json::value* value = object().if_contains(key);
    if (!value)
      fail(ErrorKind::bad_file, "restore", "{}: {}: \"{}\" is missing. Was the file changed?", text_, where_, key);
    return {*value, text_, fmt::format("{}.{}", where_, key)};
  }
  template <class F>
  void for_each(F f) const {
    for (const auto& [key, value] : object())
      f(std::string(key), Reader(value, text_, fmt::format("{}.{}", where_, std::string_view(key))));
  }

 private:
  const json::value& value_;
  std::string_view text_;
  std::string where_;
};

bool is_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos && name.find('\0') == name.npos;
}

bool is_file_of_checkpoint(std::string_view file) {
  for (std::string_view folder : {"params/", "state/"})
    if (file.starts_with(folder)) return is_file_name(file.substr(folder.size()));
  return false;
}

uint32_t checksum_in(const Reader& reader) {
  const std::string digits = reader.string();
  const std::optional crc = tessera::detail::parse_number<uint32_t>(digits, 16);
  if (digits.size() != 8 || !crc) reader.refuse("8 hexadecimal digits");
  return *crc;
}

Shape shape_in(const Reader& reader) {
  Shape shape;
  for (const json::value& size : reader.array()) {
    if (!size.is_int64() || size.get_int64() < 0) reader.refuse("whole numbers from 0 on");
    shape.push_back(size.get_int64());
  }
  return shape;
}

std::optional<std::vector<std::string>> axes_in(const Reader& reader) {
  if (reader.is_null()) return std::nullopt;
  std::vector<std::string> axes;
  for (const json::value& name : reader.array()) {
    if (!name.is_string()) reader.refuse("names");
    axes.emplace_back(name.get_string());
  }
  return axes;
}

int64_t bytes_in(const SavedTensor& tensor, const Reader& reader) {
  try {
    return tensor.bytes();
  } catch (const Error&) {
    reader.refuse("a shape of at most 2^63 - 1 bytes");
  }
}

SavedTensor tensor_in(const std::string& name, const Reader& reader) {
  const auto dtype = dtype_of(reader["dtype"].string());
  if (!dtype) reader["dtype"].refuse("an element type, such as float32");
  SavedTensor tensor{.name = name,
                     .dtype = *dtype,
                     .shape = shape_in(reader["shape"]),
                     .axes = axes_in(reader["axes"]),
                     .file = reader["file"].string()};
  if (tensor.axes && tensor.axes->size() != tensor.shape.size()) reader["axes"].refuse("a name for each dim");
  if (!is_file_of_checkpoint(tensor.file)) reader["file"].refuse("a file in params/ or state/");
  const json::array& sums = reader["crc32c"].array();
  const int64_t bytes = bytes_in(tensor, reader["shape"]);
  if (static_cast<int64_t>(sums.size()) != bytes / kChunkBytes + (bytes % kChunkBytes != 0))
    reader["crc32c"].refuse(fmt::format("a checksum for each {} of {} bytes", kChunkBytes, bytes));
  for (const json::value& sum : sums) tensor.checksums.push_back(checksum_in({sum, name, "crc32c"}));
  return tensor;
}

json::object to_object(const SavedTensor& tensor) {
  json::array sums;
  for (uint32_t crc : tensor.checksums) sums.emplace_back(fmt::format("{:08x}", crc));
  return {{"dtype", name_of(tensor.dtype)},
          {"shape", json::array(tensor.shape.begin(), tensor.shape.end())},
          {"axes", tensor.axes ? json::value(json::array(tensor.axes->begin(), tensor.axes->end())) : nullptr},
          {"file", tensor.file},
          {"crc32c", std::move(sums)}};
}

// {"first": line, ...} with a line for each entry, so that people can read it.
std::string lines_of(const json::object& object) {
  std::string text = "{";
  for (const auto& [key, value] : object)
    text += fmt::format("{}\n    {}: {}", text.size() > 1 ? "," : "", json::serialize(key), json::serialize(value));
  return text + (text.size() > 1 ? "\n  }" : "}");
}

int levels_of(const json::value& value) {
  int inner = 0;
  if (const json::array* array = value.if_array())
    for (const json::value& one : *array) inner = std::max(inner, levels_of(one));
  else if (const json::object* object = value.if_object())
    for (const auto& [key, one] : *object) inner = std::max(inner, levels_of(one));
  else
    return 0;
  return inner + 1;
}

json::object parsed(const std::map<std::string, std::string>& texts, std::string_view what) {
  json::object object;
  for (const auto& [name, text] : texts) {
    check_name(what, name);
    const std::string where = fmt::format("{} \"{}\"", what, name);
    const json::value& value = object.emplace(name, parse_json(text, "save", where)).first->value();
    if (const int levels = levels_of(value); levels > kMostLevels)
      fail(ErrorKind::bad_file, "save", "{}: {} levels of nesting given, expected at most {}. Save it flatter.", where,
           levels, kMostLevels);
  }
  return object;
}

std::map<std::string, std::string> texts_in(const Reader& reader) {
  std::map<std::string, std::string> texts;
  reader.for_each([&](const std::string& name, const Reader& value) { texts[name] = json::serialize(value.value()); });
  return texts;
}

}  // namespace

TensorEntry SavedTensor::entry() const { return {name, dtype, shape.empty() ? Shape{1} : shape}; }

std::string Manifest::to_json() const {
  json::object saved;
  for (const SavedTensor& tensor : tensors) saved.emplace(tensor.name, to_object(tensor));
  return fmt::format(
      "{{\n  \"format\": \"{}\",\n  \"version\": {},\n  \"step\": {},\n  \"chunk_bytes\": {},\n  \"tensors\": {}\n}}\n",
      kFormat, kVersion, step, kChunkBytes, lines_of(saved));
}

Manifest Manifest::from_json(std::string_view text, std::string_view name) {
  const json::value value = parse_json(text, "restore", name);
  const Reader reader(value, name, "manifest");
  if (reader["format"].string() != kFormat) reader["format"].refuse(fmt::format("\"{}\"", kFormat));
  if (reader["version"].whole_number() != kVersion)
    reader["version"].refuse(fmt::format("{}, the one this program reads", kVersion));
  if (reader["chunk_bytes"].whole_number() != kChunkBytes) reader["chunk_bytes"].refuse(std::to_string(kChunkBytes));
  Manifest manifest{.step = reader["step"].whole_number(), .tensors = {}};
  reader["tensors"].for_each(
      [&](const std::string& path, const Reader& tensor) { manifest.tensors.push_back(tensor_in(path, tensor)); });
  return manifest;
}

std::string SavedState::to_json() const {
  json::object measured;
  for (const auto& [name, value] : metrics) {
    check_name("metric", name);
    measured.emplace(name, value);
  }
  return fmt::format("{{\n  \"numbers\": {},\n  \"extra\": {},\n  \"metrics\": {}\n}}\n",
                     lines_of(parsed(numbers, "number")), lines_of(parsed(extra, "extra")), lines_of(measured));
}

SavedState SavedState::from_json(std::string_view text, std::string_view name) {
  const json::value value = parse_json(text, "restore", name);
  const Reader reader(value, name, "state");
  SavedState state{.numbers = texts_in(reader["numbers"]), .extra = texts_in(reader["extra"]), .metrics = {}};
  reader["metrics"].for_each([&](const std::string& metric, const Reader& number) {
    if (!number.value().is_number()) number.refuse("a number");
    state.metrics[metric] = number.value().to_number<double>();
  });
  return state;
}

SafetensorsIndex SafetensorsIndex::of(const Manifest& manifest, std::string_view folder) {
  SafetensorsIndex index;
  for (const SavedTensor& saved : manifest.tensors) {
    if (!saved.file.starts_with(folder) || saved.file.find('/') != folder.size()) continue;
    index.files[saved.name] = saved.file.substr(folder.size() + 1);
    index.total_bytes += saved.bytes();
  }
  return index;
}

std::string SafetensorsIndex::to_json() const {
  json::object map;
  for (const auto& [tensor, file] : files) map.emplace(tensor, file);
  return fmt::format("{{\n  \"metadata\": {{\"total_size\": {}}},\n  \"weight_map\": {}\n}}\n", total_bytes,
                     lines_of(map));
}

SafetensorsIndex SafetensorsIndex::from_json(std::string_view text, std::string_view name) {
  const json::value value = parse_json(text, "restore", name);
  SafetensorsIndex index;
  Reader(value, name, "index")["weight_map"].for_each([&](const std::string& tensor, const Reader& file) {
    if (!is_file_name(file.string())) file.refuse("a file beside the index");
    index.files[tensor] = file.string();
  });
  return index;
}

void check_name(std::string_view what, std::string_view name) {
  boost::system::error_code error;
  json::parse(json::serialize(json::string(name)), error);
  if (!error) return;
  std::string shown;
  for (const unsigned char c : name)
    shown += c < 0x80 ? std::string(1, static_cast<char>(c)) : fmt::format("\\x{:02x}", c);
  fail(ErrorKind::bad_argument, "save", "{} \"{}\": expected a name in UTF-8.", what, shown);
}

std::string commit_mark(std::string_view manifest, std::string_view state) {
  const auto line = [](std::string_view name, std::string_view text) {
    return fmt::format("{} crc32c {:08x}\n", name, crc32c(std::as_bytes(std::span(text))));
  };
  return fmt::format("{} {}\n", kFormat, kVersion) + line("manifest.json", manifest) + line("state.json", state);
}

}  // namespace tessera::nn
