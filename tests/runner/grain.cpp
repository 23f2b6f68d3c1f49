// Reference files of kind "grain_loader": Grain's splits, shuffles and packed rows, compared index for index.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "data/datasets/dataset.h"
#include "data/streams/stream.h"
#include "sharding/files/json.h"
#include "tests/runner/reference_values.h"
#include "tests/runner/report.h"

namespace tessera::runner {
namespace {

namespace json = boost::json;
using Numbers = std::vector<int64_t>;

int64_t number(const Json& value, const char* key) { return value.at(key).to_number<int64_t>(); }

void compare(Report& report, const std::string& where, const Json& expected, const Json& got) {
  report.check(expected == got, where, json::serialize(expected).substr(0, 200), json::serialize(got).substr(0, 200));
}

template <class T>
Json json_list(const std::vector<T>& values) {
  json::array array;
  for (const T& value : values) array.push_back(static_cast<int64_t>(value));
  return array;
}

void even_split(const Json& c, Report& report) {
  const int64_t size = number(c, "size"), count = number(c, "count");
  const bool drop = c.at("drop").as_bool();
  json::array ranges;
  for (int64_t i = 0; i < count; ++i) {
    const auto [begin, end] = data::even_split(size, {i, count, drop});
    ranges.push_back(json::array{begin, end});
  }
  compare(report, fmt::format("even_split of {} over {}, drop_remainder={}", size, count, drop), c.at("ranges"),
          ranges);
}

void strided(const Json& c, Report& report) {
  const int64_t size = number(c, "size"), count = number(c, "count");
  json::array shards;
  for (int64_t i = 0; i < count; ++i) {
    Numbers records;
    for (const int64_t record : data::range(size).shard({i, count, false})) records.push_back(record);
    shards.push_back(json_list(records));
  }
  compare(report, fmt::format("every {}th of {}", count, size), c.at("shards"), shards);
}

void index_shuffle(const Json& c, Report& report) {
  const data::GrainPermutation order(number(c, "size"), c.at("seed").to_number<uint32_t>());
  Numbers images;
  for (const Json& index : c.at("indices").as_array()) images.push_back(order(index.to_number<int64_t>()));
  compare(report, fmt::format("index_shuffle of {}, seed {}", order.size(), number(c, "seed")), c.at("images"),
          json_list(images));
}

// Grain's permutation repeats some indices for this size, so the library must refuse it.
void refused(const Json& c, Report& report) {
  std::string said = "no error";
  try {
    data::GrainPermutation(number(c, "size"), 3);
  } catch (const Error& error) {
    said = error.what();
  }
  report.check(number(c, "missing") > 0 && said.starts_with("[shuffle] grain_v1"),
               fmt::format("index_shuffle of {}", number(c, "size")), "an error", said);
}

void epochs(const Json& c, Report& report) {
  const auto seed = c.at("seed").to_number<uint32_t>();
  const int64_t size = number(c, "size");
  Numbers records;
  for (const int64_t record : data::range(size).shuffle(data::grain_v1{seed}).repeat(3)) records.push_back(record);
  compare(report, fmt::format("three epochs of {}, seed {}", size, seed), c.at("records"), json_list(records));
}

void pack(const Json& c, Report& report) {
  std::vector<std::vector<int32_t>> documents;
  for (const Json& length : c.at("lengths").as_array())
    documents.emplace_back(length.to_number<size_t>(), static_cast<int32_t>(documents.size() + 1));
  const data::PackOptions options{.length = number(c, "length"), .num_packing_bins = number(c, "open_rows")};
  json::array rows;
  for (const auto& row : data::Dataset<std::vector<int32_t>>::from_vector(documents).pack(options))
    rows.push_back(json::object{{"tokens", json_list(row.tokens)},
                                {"segment_ids", json_list(row.segment_ids)},
                                {"positions", json_list(row.positions)}});
  compare(report, fmt::format("packing {}", json::serialize(c.at("lengths"))), c.at("rows"), rows);
}

}  // namespace

void run_grain(const std::filesystem::path& file, Report& report) {
  const Json all = parse_json_file(file);
  const struct {
    const char* name;
    void (*run)(const Json&, Report&);
  } kinds[] = {{"even_splits", even_split}, {"strided", strided}, {"index_shuffle", index_shuffle},
               {"refused", refused},        {"epochs", epochs},   {"packs", pack}};
  for (const auto& kind : kinds)
    for (const Json& c : all.at("grain").at(kind.name).as_array()) kind.run(c, report);
}

}  // namespace tessera::runner
