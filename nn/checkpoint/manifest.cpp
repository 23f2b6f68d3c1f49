// Writes the JSON of a checkpoint in one form, and reads it strictly.
#include "nn/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>
#include <boost/json/value.hpp>

#include "sharding/base/fail.h"
#include "sharding/base/text.h"
#include "sharding/files/file.h"
#include "sharding/files/json.h"
#include "sharding/files/json_part.h"

namespace tessera::nn {
namespace {

namespace json = boost::json;
using tessera::detail::JsonPart;

constexpr std::string_view kFormat = "tessera checkpoint";
constexpr int64_t kVersion = 1;
constexpr int kMostLevels = 30;  // for a value in state.json: a reader accepts 32, and the value is two levels deep

bool is_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos && name.find('\0') == name.npos;
}

bool is_file_of_checkpoint(std::string_view file) {
  for (std::string_view folder : {"params/", "state/"})
    if (file.starts_with(folder)) return is_file_name(file.substr(folder.size()));
  return false;
}

// Returns the JSON of a complete text; errors call its top level `root`.
JsonPart read(const json::value& value, std::string_view text, const char* root) {
  return {value, fmt::format("{}: {}", text, root), "restore", " Was the file changed?"};
}

uint32_t checksum_in(const JsonPart& part) {
  const std::string digits = part.text();
  const std::optional crc = tessera::detail::parse_number<uint32_t>(digits, 16);
  if (digits.size() != 8 || !crc) part.refuse_type("8 hexadecimal digits");
  return *crc;
}

int64_t bytes_in(const SavedTensor& tensor, const JsonPart& shape) {
  try {
    return tensor.bytes();
  } catch (const Error&) {
    shape.refuse_type("a shape of at most 2^63 - 1 bytes");
  }
}

SavedTensor tensor_in(const std::string& name, const JsonPart& part) {
  if (const std::string excess = tessera::detail::excess_of_name(name); !excess.empty()) part.refuse(excess);
  const JsonPart axes = part.at("axes"), file = part.at("file"), sums = part.at("crc32c");
  const auto dtype = dtype_of(part.at("dtype").text());
  if (!dtype) part.at("dtype").refuse_type("an element type, such as float32");
  SavedTensor tensor{.name = name, .dtype = *dtype, .shape = part.at("shape").shape(), .file = file.text()};
  if (!axes.is_null()) {
    tensor.axes.emplace();
    for (const JsonPart& axis : axes.items()) tensor.axes->push_back(axis.text());
    if (tensor.axes->size() != tensor.shape.size()) axes.refuse_type("a name for each dim");
  }
  if (!is_file_of_checkpoint(tensor.file)) file.refuse_type("a file in params/ or state/");
  const int64_t bytes = bytes_in(tensor, part.at("shape"));
  if (static_cast<int64_t>(sums.length()) != bytes / kChunkBytes + (bytes % kChunkBytes != 0))
    sums.refuse_type(fmt::format("a checksum for each {} of {} bytes", kChunkBytes, bytes));
  for (const JsonPart& sum : sums.items()) tensor.checksums.push_back(checksum_in(sum));
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

// Writes {"first": line, ...} with one line per entry, which keeps the file readable.
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
      fail(ErrorKind::invalid_file, "save", "{}: {} levels of nesting given, expected at most {}. Save it flatter.",
           where, levels, kMostLevels);
  }
  return object;
}

std::map<std::string, std::string> texts_in(const JsonPart& part) {
  std::map<std::string, std::string> texts;
  for (const auto& [name, value] : part.members()) texts[name] = json::serialize(value.value);
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
  const JsonPart whole = read(value, name, "manifest");
  const auto check = [&](const char* key, const json::value& expected, const std::string& description) {
    if (whole.at(key).value != expected) whole.at(key).refuse_type(description);
  };
  check("format", json::value(kFormat), fmt::format("\"{}\"", kFormat));
  check("version", kVersion, fmt::format("{}, the one this program reads", kVersion));
  check("chunk_bytes", kChunkBytes, std::to_string(kChunkBytes));
  Manifest manifest{.step = whole.at("step").integer(0, kMaxStep), .tensors = {}};
  for (const auto& [path, tensor] : whole.at("tensors").members()) manifest.tensors.push_back(tensor_in(path, tensor));
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
  const JsonPart whole = read(value, name, "state");
  SavedState state{.numbers = texts_in(whole.at("numbers")), .extra = texts_in(whole.at("extra")), .metrics = {}};
  for (const auto& [metric, number] : whole.at("metrics").members()) state.metrics[metric] = number.number();
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
  for (const auto& [tensor, file] : read(value, name, "index").at("weight_map").members()) {
    if (!is_file_name(file.text())) file.refuse_type("a file next to the index");
    index.files[tensor] = file.text();
  }
  return index;
}

void check_name(std::string_view what, std::string_view name) {
  if (const std::string excess = tessera::detail::excess_of_name(name); !excess.empty())
    fail(ErrorKind::invalid_argument, "save", "{}: {} Shorten it.", what, excess);
  boost::system::error_code error;
  json::parse(json::serialize(json::string(name)), error);
  if (!error) return;
  std::string shown;
  for (const unsigned char c : name)
    shown += c < 0x80 ? std::string(1, static_cast<char>(c)) : fmt::format("\\x{:02x}", c);
  fail(ErrorKind::invalid_argument, "save", "{} \"{}\": expected a name in UTF-8.", what, shown);
}

std::string commit_mark(std::string_view manifest, std::string_view state) {
  const auto line = [](std::string_view name, std::string_view text) {
    return fmt::format("{} crc32c {:08x}\n", name, crc32c(std::as_bytes(std::span(text))));
  };
  return fmt::format("{} {}\n", kFormat, kVersion) + line("manifest.json", manifest) + line("state.json", state);
}

}  // namespace tessera::nn
