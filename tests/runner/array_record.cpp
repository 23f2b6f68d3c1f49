// Converts arrays to JSON records and compares the records.
#include "tests/runner/array_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <map>

namespace tessera::runner {

namespace json = boost::json;

std::string_view word_of(ErrorKind kind) {
  static const std::map<ErrorKind, std::string_view> words{
      {ErrorKind::not_divisible, "uneven"},        {ErrorKind::duplicate_axis, "duplicate_axis"},
      {ErrorKind::unknown_axis, "unknown_axis"},   {ErrorKind::rank_mismatch, "rank_mismatch"},
      {ErrorKind::unconstrained, "unconstrained"}, {ErrorKind::varying_axis, "vma"},
      {ErrorKind::size_mismatch, "size_mismatch"}, {ErrorKind::duplicate_pair, "duplicate_pair"},
  };
  const auto word = words.find(kind);
  return word == words.end() ? "other" : word->second;
}

DType jax_dtype_of(const Json& name) {
  const std::string text(name.as_string());
  if (text == "float64") return float32;
  if (text == "int64") return int32;
  const auto dtype = dtype_of(text);
  if (!dtype) fail(ErrorKind::invalid_file, "reference_runner", fmt::format("an element type {}.", text));
  return *dtype;
}

Json json_of(const Shape& shape) { return json::value_from(shape); }

Json json_of(const IndexRanges& ranges) {
  json::array result;
  for (const auto& [start, stop] : ranges) result.push_back(json::array{start, stop});
  return result;
}

Json json_of(const PartitionSpec& spec, int ndim) {
  json::array result;
  for (const SpecEntry& entry : spec.entries())
    result.push_back(entry.axes().empty()       ? Json()
                     : entry.axes().size() == 1 ? Json(entry.axes()[0])
                                                : json::value_from(entry.axes()));
  if (static_cast<int>(result.size()) < ndim) result.resize(ndim);
  return result;
}

Json json_of(Mesh mesh) {
  json::array axes;
  for (const MeshAxis& axis : mesh.axes()) axes.push_back(json::array{axis.name, axis.size});
  return json::object{{"axes", axes}, {"device_ids", json::value_from(mesh.devices())}};
}

namespace {

Json element(double value, DType dtype) {
  if (dtype == boolean) return value != 0;
  return is_floating(dtype) ? Json(value) : Json(static_cast<int64_t>(value));
}

Json nested(const std::vector<double>& values, const Shape& shape, DType dtype, size_t dim, size_t& next) {
  if (dim == shape.size()) return element(values[next++], dtype);
  json::array result;
  for (int64_t i = 0; i < shape[dim]; ++i) result.push_back(nested(values, shape, dtype, dim + 1, next));
  return result;
}

template <class T>
std::vector<double> doubles(const Array& x) {
  const std::vector<T> values = x.to_host<T>();
  return {values.begin(), values.end()};
}

std::vector<double> host_values(const Array& x) {
  switch (x.dtype()) {
    case DType::boolean:
      return doubles<bool>(x);
    case DType::int8:
      return doubles<int8_t>(x);
    case DType::int16:
      return doubles<int16_t>(x);
    case DType::int32:
      return doubles<int32_t>(x);
    case DType::int64:
      return doubles<int64_t>(x);
    case DType::uint8:
      return doubles<uint8_t>(x);
    case DType::float64:
      return doubles<double>(x);
    default:
      return doubles<float>(x);
  }
}

Json devices_of(std::vector<Shard> shards) {
  std::sort(shards.begin(), shards.end(), [](const Shard& a, const Shard& b) { return a.device < b.device; });
  json::array devices;
  for (const Shard& s : shards)
    devices.push_back(json::object{{"id", s.device}, {"index", json_of(s.index)}, {"replica_id", s.replica_id}});
  return devices;
}

}  // namespace

Json values_of(const Array& x) {
  size_t next = 0;
  return nested(host_values(x), x.shape(), x.dtype(), 0, next);
}

Json record_of(const Array& x, bool with_values) {
  const NamedSharding sharding = x.sharding();
  const std::vector<Shard> shards = x.addressable_shards();
  const bool single = sharding.mesh().axes().empty();
  json::object record{{"shape", json_of(x.shape())},
                      {"dtype", name_of(x.dtype())},
                      {"sharding", single ? "SingleDeviceSharding" : "NamedSharding"},
                      {"mesh", json_of(sharding.mesh())},
                      {"spec", json_of(sharding.spec(), x.ndim())},
                      {"local_shape", json_of(shards[0].data.shape())},
                      {"is_fully_replicated", x.is_fully_replicated()},
                      {"num_devices", shards.size()},
                      {"devices", devices_of(shards)},
                      {"bytes_per_device", shards[0].data.nbytes()}};
  if (with_values) record["values"] = values_of(x);
  return record;
}

namespace {

bool is_near(const Json& a, const Json& b, double tolerance) {
  if (!a.is_number() || !b.is_number() || (!a.is_double() && !b.is_double())) return a == b;
  const double x = a.to_number<double>(), y = b.to_number<double>();
  // The files write a float32 as the shortest decimal that reads back to it.
  return std::abs(x - y) <= tolerance || static_cast<float>(x) == static_cast<float>(y);
}

// Removes trailing nulls. An empty tuple becomes null, and a tuple of one its axis.
Json plain_spec(const Json& spec) {
  json::array entries = spec.as_array();
  for (Json& entry : entries)
    if (entry.is_array() && entry.as_array().size() < 2) entry = entry.as_array().empty() ? Json() : Json(entry.at(0));
  while (!entries.empty() && entries.back().is_null()) entries.pop_back();
  return entries;
}

std::string difference_of_lists(const json::array& expected, const json::array& got, double tolerance) {
  if (expected.size() != got.size()) return fmt::format("expected {} items, got {}", expected.size(), got.size());
  for (size_t i = 0; i < expected.size(); ++i)
    if (const std::string words = difference(expected[i], got[i], tolerance); !words.empty())
      return fmt::format("[{}] {}", i, words);
  return "";
}

std::string difference_of_objects(const json::object& expected, const json::object& got, double tolerance) {
  std::string result;
  for (const auto& [key, value] : expected) {
    const Json* other = got.if_contains(key);
    const std::string words = !other ? fmt::format("expected {}, got nothing", json::serialize(value))
                              : key == "spec" && value.is_array() && other->is_array()
                                  ? difference(plain_spec(value), plain_spec(*other))
                                  : difference(value, *other, tolerance);
    if (!words.empty()) result += fmt::format("{}{}: {}", result.empty() ? "" : "; ", std::string(key), words);
  }
  return result;
}

}  // namespace

std::string difference(const Json& expected, const Json& got, double tolerance) {
  if (expected.is_object() && got.is_object())
    return difference_of_objects(expected.as_object(), got.as_object(), tolerance);
  if (expected.is_array() && got.is_array()) return difference_of_lists(expected.as_array(), got.as_array(), tolerance);
  if (is_near(expected, got, tolerance)) return "";
  return fmt::format("expected {}, got {}", json::serialize(expected), json::serialize(got));
}

}  // namespace tessera::runner
