// A placement table as JSON, written and read.
#include <fmt/format.h>

#include <boost/json.hpp>

#include "nn/placement/table.h"
#include "sharding/diagnostics/fail.h"
#include "sharding/files/json.h"

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
  if (!row.stage.empty()) object["stage"] = row.stage;
  return object;
}

constexpr const char* reads = "parse_placement_table";

[[noreturn]] void refuse(const std::string& where, const char* expected) {
  fail(ErrorKind::bad_file, reads,
       "the text is not what PlacementTable::to_json writes: {} is missing or not {}. Write it again.", where,
       expected);
}

// Values that know where in the text they stand, so that an error can name the place: "rows[3].shape".
struct Field {
  const json::value* value;  // or none: it is missing
  std::string where;

  Field at(const char* name) const {
    const json::object* object = value ? value->if_object() : nullptr;
    if (!object) refuse(where, "an object");
    return {object->if_contains(name), where.empty() ? name : fmt::format("{}.{}", where, name)};
  }
  std::string text() const {
    const json::string* text = value ? value->if_string() : nullptr;
    return text ? std::string(*text) : (refuse(where, "a string"), "");
  }
  int64_t number() const {
    const int64_t* number = value ? value->if_int64() : nullptr;
    return number ? *number : (refuse(where, "a whole number"), 0);
  }
  std::vector<Field> items() const {
    const json::array* array = value ? value->if_array() : nullptr;
    if (!array) refuse(where, "a list");
    std::vector<Field> items;
    for (const json::value& item : *array) items.push_back({&item, fmt::format("{}[{}]", where, items.size())});
    return items;
  }
  template <class T>
  std::vector<T> list(T (Field::*read)() const) const {
    std::vector<T> list;
    for (const Field& item : items()) list.push_back((item.*read)());
    return list;
  }
};

DType dtype_in(const Field& field) {
  const std::optional<DType> dtype = dtype_of(field.text());
  return dtype ? *dtype : (refuse(field.where, "the name of an element type"), DType::float32);
}

std::vector<MeshAxis> mesh_in(const Field& field) {
  const json::object* object = field.value ? field.value->if_object() : nullptr;
  if (!object) refuse(field.where, "an object");
  std::vector<MeshAxis> mesh;
  for (const auto& axis : *object) {
    const std::string name = axis.key();
    mesh.push_back({name, Field{&axis.value(), field.where + "." + name}.number()});
  }
  return mesh;
}

PlacementRow to_row(const Field& object) {
  const Field axes = object.at("axes");
  const bool is_named = !axes.value || !axes.value->is_null();
  return {.path = object.at("path").text(),
          .axes = is_named ? std::optional(axes.list(&Field::text)) : std::nullopt,
          .spec = object.at("spec").text(),
          .shape = object.at("shape").list(&Field::number),
          .shard_shape = object.at("shard_shape").list(&Field::number),
          .dtype = dtype_in(object.at("dtype")),
          .elements = object.at("elements").number(),
          .bytes = object.at("bytes").number(),
          .bytes_per_device = object.at("bytes_per_device").number(),
          .replicas = object.at("replicas").number(),
          .mesh = mesh_in(object.at("mesh")),
          .divided_over = object.at("divided_over").list(&Field::text),
          .stage = object.at("stage").value ? object.at("stage").text() : ""};
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
  const json::value value = parse_json(text, reads, "the table");
  if (!value.is_object()) refuse("the whole", "an object");
  std::vector<PlacementRow> rows;
  for (const Field& row : Field{&value, ""}.at("rows").items()) rows.push_back(to_row(row));
  return PlacementTable(std::move(rows));
}

}  // namespace tessera::nn
