// Runs a file of examples, and compares the output of each with the file's.
#include "tests/runner/seeds_examples.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <optional>
#include <sstream>

#include "sharding/array/visualize.h"
#include "sharding/files/json.h"
#include "sharding/operations.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/redistribution/device_put.h"
#include "tests/runner/report.h"

namespace tessera::runner {

namespace json = boost::json;

namespace {

constexpr const char* sections[] = {"arrays",      "values", "documented",      "visualize",
                                    "collectives", "errors", "optimizer_state", "gradient_specs"};

// The documents' devices round differently: the printed numbers deviate by up to 5.2e-7 from exact arithmetic. One unit
// in the last place of a float32 below one adds 6e-8.
constexpr double documented_tolerance = 6e-7;

std::string name_of(const std::string& section, const std::string& name) { return section + " \"" + name + "\""; }

// Returns whether the file has a tolerance for the value.
bool has_tolerance(const Json& value) { return value.is_object() && value.as_object().contains("tolerance"); }

}  // namespace

const Json* Example::find(const std::string& section, const std::string& name) {
  shown_.insert(name_of(section, name));
  const Json* items = expected_.as_object().if_contains(section);
  const Json* item = items ? items->as_object().if_contains(name) : nullptr;
  if (!item) complain(section, name, "shown, but not in the file");
  return item;
}

void Example::complain(const std::string& section, const std::string& name, const std::string& words) {
  if (!words.empty())
    failures_ += fmt::format("{}{}: {}", failures_.empty() ? "" : "; ", name_of(section, name), words);
}

void Example::compare(const std::string& section, const std::string& name, const Json& got) {
  if (const Json* item = find(section, name)) complain(section, name, difference(*item, got));
}

Array Example::tensor(const std::string& name) const {
  const std::string key = std::string(expected_.at("id").as_string()) + "/" + name;
  if (!tensors_) fail(ErrorKind::invalid_file, "seeds_examples", fmt::format("no tensors beside the file: {}.", key));
  return tensors_->array(key);
}

void Example::array(const std::string& name, const Array& x) {
  if (const Json* item = find("arrays", name))
    complain("arrays", name, difference(*item, record_of(x, item->as_object().contains("values"))));
}

void Example::value(const std::string& name, const Json& got) {
  const Json* item = find("values", name);
  if (!item) return;
  const double tolerance = has_tolerance(*item) ? item->at("tolerance").to_number<double>() : 0;
  complain("values", name, difference(has_tolerance(*item) ? item->at("value") : *item, got, tolerance));
}

void Example::documented(const std::string& name, const Json& got) {
  if (const Json* item = find("documented", name))
    complain("documented", name, difference(*item, got, documented_tolerance));
}

namespace {

// Returns the sums of x that the file contains; for listed samples, the same elements of x.
Json checksum_of(const Array& x, const Json& expected) {
  const std::vector<float> values = x.to_host<float>();
  double sum = 0, abs_sum = 0, wsum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += values[i], abs_sum += std::abs(values[i]);
    wsum += values[i] * (static_cast<double>((i * 13 + 5) % 17) - 8) / 16;
  }
  json::object result{{"shape", json_of(x.shape())},
                      {"dtype", name_of(x.dtype())},
                      {"sum", sum},
                      {"abs_sum", abs_sum},
                      {"wsum", wsum},
                      {"values", json::value_from(values)}};
  if (const Json* samples = expected.as_object().if_contains("samples")) {
    json::array got;
    for (const Json& s : samples->as_array())
      got.push_back(json::array{s.at(0), values.at(s.at(0).to_number<size_t>())});
    result["samples"] = got;
  }
  return result;
}

}  // namespace

void Example::checksum(const std::string& name, const Array& x) {
  const Json* item = find("values", name);
  if (!item) return;
  const double tolerance = has_tolerance(*item) ? item->at("tolerance").to_number<double>() : 0;
  const Json& expected = has_tolerance(*item) ? item->at("value") : *item;
  const Json got = checksum_of(x, expected);
  json::object sums = expected.as_object(), elements = expected.as_object();
  for (const char* key : {"sum", "abs_sum", "wsum"}) elements.erase(key);
  for (const char* key : {"values", "samples"}) sums.erase(key);
  complain("values", name, difference(elements, got, tolerance));
  complain("values", name, difference(sums, got, tolerance * static_cast<double>(x.size()) + 1e-9));
}

void Example::collectives(const std::string& name, const CommLedger& ledger) {
  const Json* item = find("collectives", name);
  if (!item) return;
  int64_t bytes = 0;
  for (const auto& [kind, total] : item->at("summary").as_object()) bytes += total.at("bytes").to_number<int64_t>();
  if (ledger.bytes() > bytes)
    complain("collectives", name,
             fmt::format("expected at most {} bytes, got {}\n{}", bytes, ledger.bytes(), ledger.to_text()));
}

void Example::error(const std::string& name, const std::function<void()>& call) {
  const Json* item = find("errors", name);
  if (!item) return;
  const std::string kind(item->at("kind").as_string());
  try {
    call();
    complain("errors", name, "expected " + kind + ", got none");
  } catch (const Error& error) {
    // JAX requires a mesh in context here; the library requires an array that is placed on a mesh.
    const bool right = kind == "no_mesh" ? error.kind() == ErrorKind::device_mismatch : word_of(error.kind()) == kind;
    if (!right) complain("errors", name, "expected " + kind + ", got " + error.what());
  }
}

void Example::visualize(const std::string& name, const Array& x) {
  std::istringstream text(visualize_sharding(x, {.width = 80, .color = VisualizeOptions::Color::never}));
  json::array lines;
  for (std::string line; std::getline(text, line);) lines.push_back(json::string(line));
  compare("visualize", name, lines);
}

void Example::optimizer_state(const std::string& name, const Array& x) {
  compare("optimizer_state", name, record_of(x));
}

void Example::differs(const std::string& section, const std::string& name, const std::string&) { find(section, name); }

std::string Example::failures() const {
  std::string result = failures_;
  for (const char* section : sections)
    if (const Json* items = expected_.as_object().if_contains(section))
      for (const auto& [name, item] : items->as_object())
        if (const std::string key = name_of(section, std::string(name)); !shown_.contains(key))
          result += fmt::format("{}{}: not shown", result.empty() ? "" : "; ", key);
  return result;
}

Array det(const Shape& shape, const Formula& f, DType dtype) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  std::vector<float> values(n);
  for (int64_t i = 0; i < n; ++i) values[i] = static_cast<float>(((i * f.k + f.c) % f.m - f.s) / f.d);
  const Array x = tessera::array<float>(values, shape);
  return dtype == float32 ? x : astype(x, dtype);
}

Mesh data_model() { return make_mesh({{"data", 4}, {"model", 2}}); }

Array finished(const Array& x) {
  const NamedSharding sharding = x.sharding();
  return with_sharding_constraint(x, NamedSharding(sharding.mesh(), PartitionSpec(sharding.spec().entries())));
}

namespace {

Programs all_programs() {
  Programs all = equinox_programs();
  all.merge(spmd_programs());
  all.merge(introduction_programs());
  all.merge(scaling_programs());
  return all;
}

// Runs one example; returns its deviations.
std::string run_example(const Programs& programs, const Json& expected, const SafetensorsFile* tensors) try {
  const std::string id(expected.at("id").as_string());
  const auto program = programs.find(id);
  if (program == programs.end()) return "no program of this id is written in C++; its code is Python";
  Example example(expected, tensors);
  program->second(example);
  return example.failures();
} catch (const std::exception& error) {
  return std::string("stopped by ") + error.what();
}

}  // namespace

void run_seeds_examples(const std::filesystem::path& file, Report& report) {
  const Json all = parse_json_file(file);
  const std::filesystem::path beside = std::filesystem::path(file).replace_extension(".safetensors");
  std::optional<SafetensorsFile> tensors;
  if (std::filesystem::exists(beside)) tensors = SafetensorsFile::open(beside);
  const Programs programs = all_programs();
  for (const Json& example : all.at("examples").as_array()) {
    const std::string words = run_example(programs, example, tensors ? &*tensors : nullptr);
    report.check(words.empty(), std::string(example.at("id").as_string()), "what the file shows", words);
  }
}

}  // namespace tessera::runner
