// Reads the arguments of transforms from the JSON of the reference files.
#include "tests/runner/optimizer_arguments.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "sharding/base/error.h"

namespace tessera::runner {

const Json* Arguments::find(const char* name) {
  asked_.insert(name);
  return all_.if_contains(name);
}

const Json& Arguments::at(const char* name) {
  const Json* found = find(name);
  if (!found) fail(ErrorKind::invalid_file, this->name(), fmt::format("no {} given.", name));
  return *found;
}

void Arguments::finish() const {
  for (const auto& entry : all_)
    if (!asked_.contains(std::string(entry.key())))
      fail(ErrorKind::invalid_file, name(), fmt::format("{}: no argument of this name.", std::string(entry.key())));
}

void unknown_name(const std::string& name) {
  fail(ErrorKind::invalid_file, "reference_runner", fmt::format("{}: no transform or schedule of this name.", name));
}

// Reads a mask: "ndim>1", true or false for all parameters, or true and false by name.
void Arguments::read(const Json& given, optim::Mask& value) {
  if (given.is_null()) return;
  if (given.is_bool()) {
    value = [all = given.as_bool()](const std::string&, const Array&) { return all; };
  } else if (given.is_object()) {
    value = [names = given.as_object()](const std::string& path, const Array&) { return names.at(path).as_bool(); };
  } else if (given.as_string() == "ndim>1") {
    value = optim::matrices_only;
  } else {
    fail(ErrorKind::invalid_file, "mask", fmt::format("{} given, expected ndim>1.", std::string(given.as_string())));
  }
}

// Reads a dimension or a list of dimensions.
void Arguments::read(const Json& given, Dims& value) {
  value.clear();
  if (given.is_number()) value.push_back(given.to_number<int>());
  for (const Json& dim : given.is_array() ? given.as_array() : boost::json::array())
    value.push_back(dim.to_number<int>());
}

void Arguments::read(const Json& given, std::pair<double, double>& value) {
  value = {given.at(0).to_number<double>(), given.at(1).to_number<double>()};
}

void Arguments::read(const Json& given, std::map<int64_t, double>& value) {
  if (given.is_null()) return;
  for (const auto& [boundary, scale] : given.as_object())
    value[std::stoll(std::string(boundary))] = scale.to_number<double>();
}

void Arguments::read(const Json& given, optim::Interpolation& value) {
  value = given.as_string() == "cosine" ? optim::Interpolation::cosine : optim::Interpolation::linear;
}

void Arguments::read(const Json& given, optim::Preconditioning& value) {
  static const std::map<std::string, optim::Preconditioning> names = {{"frobenius", optim::Preconditioning::frobenius},
                                                                      {"spectral", optim::Preconditioning::spectral},
                                                                      {"aol", optim::Preconditioning::aol},
                                                                      {"schatten", optim::Preconditioning::schatten}};
  value = names.at(std::string(given.as_string()));
}

void Arguments::read(const Json& given, optim::DecayShape& value) {
  static const std::map<std::string, optim::DecayShape> names = {{"linear", optim::DecayShape::linear},
                                                                 {"cosine", optim::DecayShape::cosine},
                                                                 {"one_minus_sqrt", optim::DecayShape::one_minus_sqrt}};
  value = names.at(std::string(given.as_string()));
}

// Reads dimension numbers by name: [reduction_axis, output_axis], or null.
void Arguments::read(const Json& given, optim::WeightDimensionNumbers& value) {
  std::map<std::string, optim::MuonDimensionNumbers> numbers;
  for (const auto& [name, axes] : given.as_object())
    if (!axes.is_null()) read(axes.at(0), numbers[name].reduction_axis), read(axes.at(1), numbers[name].output_axis);
  value = [numbers](const std::string& path, const nn::Leaf&) {
    return numbers.contains(path) ? std::optional(numbers.at(path)) : std::nullopt;
  };
}

void Arguments::read(const Json& given, std::vector<optim::NewtonSchulzCoefficients>& value) {
  const auto triple = [](const Json& t) {
    return optim::NewtonSchulzCoefficients{t.at(0).to_number<double>(), t.at(1).to_number<double>(),
                                           t.at(2).to_number<double>()};
  };
  if (given.is_string()) {
    if (given.as_string() == "dion") value = optim::dion_coefficients();
  } else if (given.at(0).is_array()) {
    value.clear();
    for (const Json& t : given.as_array()) value.push_back(triple(t));
  } else {
    value = {triple(given)};
  }
}

}  // namespace tessera::runner
