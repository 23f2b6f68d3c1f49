// JSON values as what a record's field wants, or the error that says where.
#include "data/json_lines.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>

#include "sharding/files/json.h"

namespace tessera::data::detail {

namespace json = boost::json;

namespace {

const json::value nothing;

[[noreturn]] void wrong(const JsonPlace& place, const std::string& expected) {
  std::string given = json::serialize(place.value).substr(0, 60);
  fail(ErrorKind::bad_file, "json_lines",
       place.where + ": " + (place.path.empty() ? "the record" : "\"" + place.path + "\"") + " is " + given +
           ", expected " + expected);
}

}  // namespace

json::value parse_line(const std::string& text, const std::string& where) {
  if (text.find_first_not_of(" \t") == std::string::npos)
    fail(ErrorKind::bad_file, "json_lines", where + ": an empty line, expected a JSON value; remove the line");
  return parse_json(text, "json_lines", where);
}

bool JsonPlace::boolean() const {
  if (!value.is_bool()) wrong(*this, "true or false");
  return value.as_bool();
}

int64_t JsonPlace::integer(int64_t least, int64_t most) const {
  if (!value.is_int64() || value.as_int64() < least || value.as_int64() > most)
    wrong(*this, "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  return value.as_int64();
}

uint64_t JsonPlace::natural() const {
  if (value.is_uint64()) return value.as_uint64();
  return static_cast<uint64_t>(integer(0, std::numeric_limits<int64_t>::max()));
}

double JsonPlace::number(double most) const {
  if (!value.is_number()) wrong(*this, "a number");
  const double number = value.to_number<double>();
  if (!(std::abs(number) <= most)) wrong(*this, fmt::format("a number of at most {:g}", most));
  return number;
}

std::string JsonPlace::text() const {
  if (!value.is_string()) wrong(*this, "a string");
  return std::string(value.as_string());
}

size_t JsonPlace::length() const {
  if (!value.is_array()) wrong(*this, "an array");
  return value.as_array().size();
}

JsonPlace JsonPlace::item(size_t i) const { return {value.as_array()[i], where, path + "[" + std::to_string(i) + "]"}; }

JsonPlace JsonPlace::field(std::string_view name) const {
  if (!value.is_object()) wrong(*this, "an object");
  const json::value* member = value.as_object().if_contains(name);
  return {member ? *member : nothing, where, nn::detail::join(path, name)};
}

bool JsonPlace::is_null() const { return value.is_null(); }

}  // namespace tessera::data::detail
