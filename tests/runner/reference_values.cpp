// Reads formulas, specs and checksums of reference files.
#include "tests/runner/reference_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sharding/base/error.h"
#include "sharding/operations.h"
#include "sharding/operations/elementwise/elementwise.h"

namespace tessera::runner {
namespace {

double number_of(const Json& value) {
  if (!value.is_string()) return value.is_bool() ? value.as_bool() : value.to_number<double>();
  const std::string text(value.as_string());
  return text == "nan" ? NAN : text == "inf" ? INFINITY : -INFINITY;
}

int64_t count(const Shape& shape) {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

std::vector<double> by_formula(const Json& f, int64_t n) {
  const auto at = [&](const char* key) { return f.at(key).to_number<int64_t>(); };
  std::vector<double> values(n);
  for (int64_t i = 0; i < n; ++i)
    values[i] = static_cast<double>((i * at("k") + at("c")) % at("m") - at("s")) / static_cast<double>(at("d"));
  return values;
}

std::vector<double> initial_values(const Json& init, int64_t n) {
  const std::string kind(init.at("kind").as_string());
  std::vector<double> values;
  if (kind == "affine_mod") {
    values = by_formula(init, n);
    if (!init.as_object().contains("then")) return values;
    if (init.at("then").as_string() != "v % 2 == 0")
      fail(ErrorKind::invalid_file, "reference_runner",
           fmt::format("init then {} is not known.", std::string(init.at("then").as_string())));
    for (double& v : values) v = std::fmod(v, 2) == 0;
  } else if (kind == "values") {
    for (const Json& v : init.at("values").as_array()) values.push_back(number_of(v));
  } else {
    fail(ErrorKind::invalid_file, "reference_runner", fmt::format("init kind {} is not known.", kind));
  }
  return values;
}

std::vector<double> doubles(const Array& x) { return astype(x, float64).to_host<double>(); }

// One number of a checksum. The tolerance of a sum is the sum of its elements' tolerances.
struct Check {
  std::string name;
  double got, expected, tolerance;
};

std::vector<Check> checks(const std::vector<double>& values, const Json& expected, const Json& formula,
                          double tolerance, double rounded) {
  const std::vector<double> w = by_formula(formula, static_cast<int64_t>(values.size()));
  double sum = 0, magnitude = 0, weighted = 0;
  for (size_t i = 0; i < values.size(); ++i)
    sum += values[i], magnitude += std::abs(values[i]), weighted += values[i] * w[i];
  const double root = std::sqrt(1.0 + static_cast<double>(values.size()));
  const double all = tolerance * root + 2 * rounded * magnitude / root;
  const double typical = magnitude / std::max<double>(1, static_cast<double>(values.size()));
  std::vector<Check> result{{"sum", sum, number_of(expected.at("sum")), all},
                            {"sum of magnitudes", magnitude, number_of(expected.at("abs_sum")), all},
                            {"weighted sum", weighted, number_of(expected.at("wsum")), all}};
  const auto add = [&](size_t i, double value) {
    result.push_back(
        {fmt::format("element {}", i), values.at(i), value, tolerance + rounded * (std::abs(value) + typical)});
  };
  const auto& object = expected.as_object();
  if (const Json* listed = object.if_contains("values"))
    for (size_t i = 0; i < listed->as_array().size(); ++i) add(i, number_of(listed->at(i)));
  if (const Json* samples = object.if_contains("samples"))
    for (const Json& sample : samples->as_array()) add(sample.at(0).to_number<size_t>(), number_of(sample.at(1)));
  return result;
}

bool agree(const Check& c) {
  if (std::isnan(c.expected)) return std::isnan(c.got);
  if (std::isinf(c.expected)) return c.got == c.expected;
  return std::abs(c.got - c.expected) <= c.tolerance;
}

}  // namespace

double rounding(DType dtype) { return dtype == bfloat16 ? 1.0 / 128 : dtype == float16 ? 1.0 / 1024 : 1e-6; }

double largest_difference(const Array& a, const Array& b) {
  if (a.shape() != b.shape()) return INFINITY;
  const std::vector<double> x = doubles(a), y = doubles(b);
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i] != y[i]) largest = std::max(largest, std::abs(x[i] - y[i]) / (1 + std::abs(y[i])));
  return largest;
}

std::vector<std::string> names_of(const Json& value) {
  if (value.is_string()) return {std::string(value.as_string())};
  std::vector<std::string> result;
  for (const Json& item : value.as_array()) result.emplace_back(item.as_string());
  return result;
}

PartitionSpec spec_of(const Json& value) {
  std::vector<SpecEntry> entries;
  for (const Json& entry : value.is_object() ? value.at("parts").as_array() : value.as_array())
    entries.push_back(entry.is_null()      ? SpecEntry()
                      : entry == Json("?") ? SpecEntry(unconstrained)
                                           : SpecEntry(names_of(entry)));
  PartitionSpec spec(std::move(entries));
  if (!value.is_object()) return spec;
  if (const Json* axes = value.as_object().if_contains("unreduced")) spec = spec.unreduced(names_of(*axes));
  if (const Json* axes = value.as_object().if_contains("reduced")) spec = spec.reduced(names_of(*axes));
  return spec;
}

Array contents(const Json& init, const Shape& shape, DType dtype) {
  return astype(array<double>(initial_values(init, count(shape)), shape), dtype);
}

Array weights(const Json& formula, const Shape& shape, DType dtype) {
  return astype(array<double>(by_formula(formula, count(shape)), shape), dtype);
}

std::string difference(const Array& x, const Json& checksum, const Json& weights, double tolerance) {
  Shape shape;
  for (const Json& size : checksum.at("shape").as_array()) shape.push_back(size.to_number<int64_t>());
  if (x.shape() != shape) return fmt::format("shape {}, got {}", to_string(shape), to_string(x.shape()));
  if (const std::string dtype(checksum.at("dtype").as_string()); name_of(x.dtype()) != dtype)
    return fmt::format("{}, got {}", dtype, name_of(x.dtype()));
  for (const Check& c : checks(doubles(x), checksum, weights, tolerance, rounding(x.dtype())))
    if (!agree(c)) return fmt::format("{} {:.9g}, got {:.9g}", c.name, c.expected, c.got);
  return {};
}

}  // namespace tessera::runner
