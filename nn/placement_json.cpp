// A placement table as JSON, written and read.
#include <fmt/format.h>

#include <boost/json.hpp>

#include "nn/placement_table.h"
#include "sharding/error.h"
#include "sharding/json.h"

namespace tessera::nn {

namespace {

namespace json = boost::json;

json::object to_object(const PlacementRow& row) {
  json::object object{{"path", row.path}, {"axes", nullptr}, {"spec", row.spec}}, mesh;
  if (row.axes) object["axes"] = json::array(row.axes->begin(), row.axes->end());
  object["shape"] = json::array(row.shape.begin(), row.shape.end());
  object["shard_shape"] = json::array(row.shard_shape.begin(), row.shard_shape.end());
  object["dtype"] = name_of(row.dtype);
  object["elements"] = row.elements;
  object["bytes"] = row.bytes;
  object["bytes_per_device"] = row.bytes_per_device;
  object["replicas"] = row.replicas;
  for (const MeshAxis& axis : row.mesh) mesh[axis.name] = axis.size;
  object["mesh"] = std::move(mesh);
  object["divided_over"] = json::array(row.divided_over.begin(), row.divided_over.end());
  return object;
}

template <class T>
std::vector<T> list_of(const json::value& value) {
  std::vector<T> list;
  for (const json::value& item : value.as_array()) list.push_back(json::value_to<T>(item));
  return list;
}

PlacementRow to_row(const json::object& object) {
  PlacementRow row{.path = json::value_to<std::string>(object.at("path")),
                   .axes = {},
                   .spec = json::value_to<std::string>(object.at("spec")),
                   .shape = list_of<int64_t>(object.at("shape")),
                   .shard_shape = list_of<int64_t>(object.at("shard_shape")),
                   .dtype = dtype_of(json::value_to<std::string>(object.at("dtype"))).value(),
                   .elements = object.at("elements").as_int64(),
                   .bytes = object.at("bytes").as_int64(),
                   .bytes_per_device = object.at("bytes_per_device").as_int64(),
                   .replicas = object.at("replicas").as_int64(),
                   .divided_over = list_of<std::string>(object.at("divided_over"))};
  if (!object.at("axes").is_null()) row.axes = list_of<std::string>(object.at("axes"));
  for (const auto& axis : object.at("mesh").as_object())
    row.mesh.push_back({std::string(axis.key()), axis.value().as_int64()});
  return row;
}

}  // namespace

std::string PlacementTable::to_json() const {
  json::array rows, axes;
  for (const PlacementRow& row : rows_) rows.push_back(to_object(row));
  for (const AxisTotals& a : over_axes())
    axes.push_back({{"axis", a.axis.name},
                    {"size", a.axis.size},
                    {"divided_bytes", a.divided_bytes},
                    {"whole_bytes", a.whole_bytes},
                    {"copies", a.copies}});
  return json::serialize(json::object{{"rows", std::move(rows)},
                                      {"arrays", rows_.size()},
                                      {"elements", elements()},
                                      {"bytes", bytes()},
                                      {"bytes_per_device", bytes_per_device()},
                                      {"replication", replication()},
                                      {"over_axes", std::move(axes)}});
}

PlacementTable parse_placement_table(std::string_view text) {
  constexpr const char* verb = "parse_placement_table";
  const json::value value = parse_json(text, verb, "the table");
  try {
    std::vector<PlacementRow> rows;
    for (const json::value& row : value.as_object().at("rows").as_array()) rows.push_back(to_row(row.as_object()));
    return PlacementTable(std::move(rows));
  } catch (const std::exception& error) {
    fail(ErrorKind::bad_file, verb,
         fmt::format("the text is not what PlacementTable::to_json writes ({}). Write it again.", error.what()));
  }
}

}  // namespace tessera::nn
