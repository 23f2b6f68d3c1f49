// Writes a placement table as JSON and parses it.
#include <algorithm>
#include <boost/json.hpp>

#include "nn/placement/table.h"
#include "sharding/files/json.h"
#include "sharding/files/json_part.h"

namespace tessera::nn {

namespace {

namespace json = boost::json;
using tessera::detail::JsonPart;

json::object to_object(const PlacementRow& row) {
  json::object object{{"path", row.path}, {"axes", nullptr}, {"spec", row.spec}}, mesh;
  if (row.axes) object["axes"] = json::array(row.axes->begin(), row.axes->end());
  object["shape"] = json::array(row.shape.begin(), row.shape.end());
  object["shard_shape"] = json::array(row.shard_shape.begin(), row.shard_shape.end());
  object["dtype"] = name_of(row.dtype);
  object["elements"] = row.num_elements;
  object["bytes"] = row.bytes;
  object["bytes_per_device"] = row.bytes_per_device;
  object["replicas"] = row.num_replicas;
  for (const MeshAxis& axis : row.mesh) mesh[axis.name] = axis.size;
  object["mesh"] = std::move(mesh);
  object["divided_over"] = json::array(row.divided_over.begin(), row.divided_over.end());
  if (!row.stage.empty()) object["stage"] = row.stage;
  if (!row.padded_shape.empty()) object["padded_shape"] = json::array(row.padded_shape.begin(), row.padded_shape.end());
  if (!row.memory_kind.empty()) object["memory_kind"] = row.memory_kind;
  return object;
}

std::vector<std::string> texts_in(const JsonPart& part) {
  std::vector<std::string> texts;
  for (const JsonPart& item : part.items()) texts.push_back(item.text());
  return texts;
}

DType dtype_in(const JsonPart& part) {
  if (const std::optional<DType> dtype = dtype_of(part.text())) return *dtype;
  part.refuse_type("the name of an element type");
}

std::vector<MeshAxis> mesh_in(const JsonPart& part) {
  std::vector<MeshAxis> mesh;
  for (const auto& [name, size] : part.members()) mesh.push_back({name, size.count()});
  return mesh;
}

PlacementRow to_row(const JsonPart& row) {
  const JsonPart axes = row.at("axes");
  return {.path = row.at("path").text(),
          .axes = axes.is_null() ? std::nullopt : std::optional(texts_in(axes)),
          .spec = row.at("spec").text(),
          .shape = row.at("shape").shape(),
          .shard_shape = row.at("shard_shape").shape(),
          .dtype = dtype_in(row.at("dtype")),
          .num_elements = row.at("elements").count(),
          .bytes = row.at("bytes").count(),
          .bytes_per_device = row.at("bytes_per_device").count(),
          .num_replicas = row.at("replicas").count(),
          .mesh = mesh_in(row.at("mesh")),
          .divided_over = texts_in(row.at("divided_over")),
          .stage = row.text("stage", ""),
          .padded_shape = row.has("padded_shape") ? row.at("padded_shape").shape() : Shape(),
          .memory_kind = row.text("memory_kind", "")};
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
                                      {"elements", element_count()},
                                      {"bytes", bytes()},
                                      {"bytes_per_device", bytes_per_device()},
                                      {"replication", replication()},
                                      {"over_axes", std::move(axes)}});
}

PlacementTable parse_placement_table(std::string_view text) {
  constexpr const char* verb = "parse_placement_table";
  const json::value value = parse_json(text, verb, "the table");
  const JsonPart table{value, "the table", verb, " Was it written by PlacementTable::to_json?"};
  std::vector<PlacementRow> rows;
  int64_t total = 0;  // at least each of the table's sums
  for (const JsonPart& json : table.at("rows").items()) {
    const PlacementRow& row = rows.emplace_back(to_row(json));
    if (__builtin_add_overflow(total, std::max({row.num_elements, row.bytes, row.bytes_per_device}), &total))
      json.refuse("the rows up to here have more than 2^63 - 1 bytes.");
  }
  return PlacementTable(std::move(rows));
}

}  // namespace tessera::nn
