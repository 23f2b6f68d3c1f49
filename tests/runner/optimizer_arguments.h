// Reads the arguments of a transform or schedule from a file, by name: each at most once, and all of them.
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <type_traits>

#include "optim/formulas/muon.h"
#include "optim/schedules/schedule.h"
#include "tests/runner/any_transform.h"
#include "tests/runner/reference_values.h"

namespace tessera::runner {

AnyTransform transform_of(const Json& expression);  // an object, or a list of objects: a chain
optim::Schedule schedule_of(const Json& expression);

class Arguments {
 public:
  // finish() throws an Error (invalid_file) if an argument was not read.
  explicit Arguments(const boost::json::object& all) : all_(all) {}
  void finish() const;

  // Sets `value` if the argument is present; args("b1", o.b1)("b2", o.b2). null resets an optional value.
  template <class T>
  Arguments& operator()(const char* name, T& value) {
    if (const Json* given = find(name)) read(*given, value);
    return *this;
  }
  // Reads a struct of options whose fields have the arguments' names. Absent arguments keep their defaults.
  template <class Options>
  Options options() {
    Options o = made<Options>();
    boost::pfr::for_each_field(o, [&](auto& field, auto number) -> void {
      (*this)(std::string(nn::detail::field_names<Options>[number]).c_str(), field);
    });
    return o;
  }
  // Returns a required argument.
  const Json& at(const char* name);
  optim::Schedule schedule(const char* name) { return schedule_of(at(name)); }
  double number(const char* name) { return at(name).to_number<double>(); }
  int64_t integer(const char* name) { return at(name).to_number<int64_t>(); }
  AnyTransform transform(const char* name) { return transform_of(at(name)); }
  const Json* find(const char* name);
  std::string name() const { return std::string(all_.at("name").as_string()); }

 private:
  template <class Options>
  Options made() {
    if constexpr (std::is_default_constructible_v<Options>)
      return {};
    else
      return {.learning_rate = schedule("learning_rate")};
  }

  static void read(const Json& given, double& value) { value = given.to_number<double>(); }
  static void read(const Json& given, int64_t& value) { value = given.to_number<int64_t>(); }
  static void read(const Json& given, bool& value) { value = given.as_bool(); }
  static void read(const Json& given, optim::Schedule& value) { value = schedule_of(given); }
  static void read(const Json& given, DType& value) { value = *dtype_of(std::string(given.as_string())); }
  static void read(const Json& given, optim::Mask& value);
  static void read(const Json& given, Dims& value);
  static void read(const Json& given, std::pair<double, double>& value);
  static void read(const Json& given, std::map<int64_t, double>& value);
  static void read(const Json& given, optim::Interpolation& value);
  static void read(const Json& given, optim::Preconditioning& value);
  static void read(const Json& given, optim::DecayShape& value);
  static void read(const Json& given, optim::WeightDimensionNumbers& value);
  static void read(const Json& given, std::vector<optim::NewtonSchulzCoefficients>& value);
  template <class T>
  static void read(const Json& given, std::optional<T>& value) {
    if (given.is_null()) {
      value.reset();
    } else if constexpr (std::is_same_v<T, optim::Schedule>) {
      value = schedule_of(given);
    } else {
      T read_value{};
      read(given, read_value);
      value = read_value;
    }
  }

  const boost::json::object& all_;
  std::set<std::string> asked_ = {"name"};
};

// A table of builders by name. build() calls the builder with the expression's name. Error (invalid_file): no builder
// has this name.
template <class Result>
using Builders = std::map<std::string, std::function<Result(Arguments&)>>;

[[noreturn]] void unknown_name(const std::string& name);

// A builder that reads the options of `make` from the arguments and calls it.
template <class Made, class Options>
auto from_options(Made (*make)(Options)) {
  return [make](Arguments& a) { return make(a.options<std::remove_cvref_t<Options>>()); };
}

template <class Result>
Result build(const Builders<Result>& builders, const Json& expression) {
  Arguments arguments(expression.as_object());
  const auto found = builders.find(arguments.name());
  if (found == builders.end()) unknown_name(arguments.name());
  Result result = found->second(arguments);
  arguments.finish();
  return result;
}

}  // namespace tessera::runner
