// Reference files of kind "placement": the shards of every device, or the stage and kind of the expected error.
#include <fmt/format.h>

#include <boost/json.hpp>

#include "sharding/files/json.h"
#include "sharding/redistribution/device_put.h"
#include "tests/runner/array_record.h"
#include "tests/runner/report.h"
#include "tests/runner/transformer_file.h"

namespace tessera::runner {
namespace {

namespace json = boost::json;

Json refused(const char* stage, const Error& error) {
  return json::object{{"ok", false}, {"stage", stage}, {"error", {{"kind", word_of(error.kind())}}}};
}

Json tiles_of(const Shape& shape, const Shape& shard) {
  json::array tiles;
  for (size_t d = 0; d < shape.size(); ++d) tiles.push_back(shard[d] ? Json(shape[d] / shard[d]) : Json());
  return tiles;
}

Json rows_of(const Json& devices) {
  json::array rows;
  for (const Json& device : devices.as_array())
    rows.push_back(json::array{device.at("id"), device.at("index"), device.at("replica_id")});
  return rows;
}

Json placed_record(const Array& x, const NamedSharding& sharding) {
  const Json array = record_of(x);
  const Shape shard = sharding.shard_shape(x.shape());
  if (json_of(shard) != array.at("local_shape") || sharding.shard_bytes(x.shape(), x.dtype()) != x.shard_bytes())
    fail(ErrorKind::other, "placement", "the sharding and the array's shards say different things.");
  return json::object{{"ok", true},
                      {"shard_shape", array.at("local_shape")},
                      {"tiles", tiles_of(x.shape(), shard)},
                      {"is_fully_replicated", array.at("is_fully_replicated")},
                      {"num_distinct_shards", sharding.distinct_shard_count(x.shape())},
                      {"bytes_per_device", array.at("bytes_per_device")},
                      {"devices", rows_of(array.at("devices"))}};
}

// A mesh that is refused counts as stage "sharding".
Json place(const Json& mesh, const Json& c, bool private_replicas) {
  const char* stage = "sharding";
  try {
    const NamedSharding sharding(mesh_of(mesh, private_replicas), spec_of(c.at("spec")));
    stage = "placement";
    return placed_record(device_put(zeros(shape_of(c.at("shape")), jax_dtype_of(c.at("dtype"))), sharding), sharding);
  } catch (const Error& error) {
    return refused(stage, error);
  }
}

// The expected outcome of a case. The type and text of an error are specific to JAX.
Json outcome_of(const Json& c) {
  json::object outcome = c.as_object();
  for (const char* key : {"id", "mesh", "shape", "dtype", "spec"}) outcome.erase(key);
  if (json::value* error = outcome.if_contains("error")) *error = json::object{{"kind", error->at("kind")}};
  return outcome;
}

void check(Report& report, const std::string& where, const Json& expected, const Json& got) {
  const std::string words = difference(expected, got);
  report.check(words.empty(), where, json::serialize(expected), json::serialize(got) + " (" + words + ")");
}

NamedSharding sharding_of(const Json& meshes, const Json& pair, bool private_replicas) {
  return NamedSharding(mesh_of(meshes.at(pair.at(0).as_string()), private_replicas), spec_of(pair.at(1)));
}

// JAX's == compares spellings. Ours also ignores trailing nones, and implies that the shardings are equivalent.
Json relations(const Json& meshes, const Json& c, bool private_replicas) {
  const NamedSharding a = sharding_of(meshes, c.at("a"), private_replicas),
                      b = sharding_of(meshes, c.at("b"), private_replicas);
  const bool equivalent = a.is_equivalent_to(b, c.at("rank").to_number<int>());
  if ((a.is_spelled_like(b) && a != b) || (a == b && !equivalent))
    fail(ErrorKind::other, "placement", "equal shardings are not equivalent.");
  return json::object{{"spec_equal", a.spelled_spec().is_spelled_like(b.spelled_spec())},
                      {"sharding_equal", a.is_spelled_like(b)},
                      {"equivalent", equivalent}};
}

}  // namespace

void run_placement(const std::filesystem::path& file, Report& report) {
  const Json all = parse_json_file(file);
  const Json& meshes = all.at("meshes");
  for (const bool private_replicas : {false, true}) {
    const char* mode = private_replicas ? " (private)" : "";
    for (const Json& c : all.at("cases").as_array()) {
      const Json& mesh = meshes.at(c.at("mesh").as_string());
      check(report, std::string(c.at("id").as_string()) + mode, outcome_of(c), place(mesh, c, private_replicas));
    }
    if (!all.as_object().contains("equivalence")) continue;
    for (const Json& c : all.at("equivalence").as_array()) {
      json::object expected = c.as_object();
      for (const char* key : {"a", "b", "rank"}) expected.erase(key);
      check(report,
            fmt::format("equivalence of {} and {}{}", json::serialize(c.at("a")), json::serialize(c.at("b")), mode),
            expected, relations(meshes, c, private_replicas));
    }
  }
}

}  // namespace tessera::runner
