// Read as what they have to be, or refused by their place.
#include "sharding/files/json_part.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <limits>

#include "sharding/diagnostics/fail.h"

namespace tessera::detail {
namespace {

const boost::json::value nothing;

const boost::json::value* member(const JsonPart& part, std::string_view key) {
  if (const auto* object = part.value.if_object()) return object->if_contains(key);
  if (!part.is_null()) part.refuse_type("an object");
  return nullptr;
}

}  // namespace

void JsonPart::refuse(const std::string& what) const {
  fail(ErrorKind::bad_file, verb, "{}: {}{}", place, what, advice);
}

void JsonPart::refuse_type(std::string_view expected) const {
  const std::string given = boost::json::serialize(value, {.allow_infinity_and_nan = true});
  refuse(fmt::format("{} given, expected {}.", given.substr(0, 60), expected));
}

bool JsonPart::has(std::string_view key) const {
  const auto* found = member(*this, key);
  return found && !found->is_null();
}

bool JsonPart::names(std::string_view key) const { return member(*this, key); }

JsonPart JsonPart::at(std::string_view key) const {
  if (!member(*this, key)) refuse(fmt::format("has no \"{}\".", key));
  return at_or_null(key);
}

JsonPart JsonPart::at_or_null(std::string_view key) const {
  if (!value.is_object()) refuse_type("an object");
  const auto* found = member(*this, key);
  return {found ? *found : nothing, fmt::format("{}.{}", place, key), verb, advice};
}

size_t JsonPart::length() const {
  if (!value.is_array()) refuse_type("an array");
  return value.get_array().size();
}

JsonPart JsonPart::item(size_t i) const { return {value.as_array()[i], fmt::format("{}.{}", place, i), verb, advice}; }

std::vector<JsonPart> JsonPart::items() const {
  std::vector<JsonPart> items;
  for (size_t i = 0, n = length(); i < n; ++i) items.push_back(item(i));
  return items;
}

std::vector<std::pair<std::string, JsonPart>> JsonPart::members() const {
  if (!value.is_object()) refuse_type("an object");
  std::vector<std::pair<std::string, JsonPart>> members;
  for (const auto& [key, member] : value.get_object()) members.emplace_back(std::string(key), at(key));
  return members;
}

std::string JsonPart::text() const {
  if (const auto* text = value.if_string()) return std::string(*text);
  refuse_type("a string");
}

std::string JsonPart::text(std::string_view key, const std::string& otherwise) const {
  return has(key) ? at(key).text() : otherwise;
}

int64_t JsonPart::integer() const {
  if (const auto* number = value.if_int64()) return *number;
  refuse_type("an integer");
}

int64_t JsonPart::integer(int64_t least, int64_t most) const {
  const auto* number = value.if_int64();
  if (number && *number >= least && *number <= most) return *number;
  refuse_type(fmt::format("a whole number from {} to {}", least, most));
}

int64_t JsonPart::integer(std::string_view key, int64_t otherwise) const {
  return has(key) ? at(key).integer() : otherwise;
}

int64_t JsonPart::count() const {
  if (const auto* number = value.if_int64(); number && *number >= 0) return *number;
  refuse_type("a whole number from 0 on");
}

uint64_t JsonPart::natural() const {
  if (const auto* number = value.if_uint64()) return *number;
  return static_cast<uint64_t>(integer(0, std::numeric_limits<int64_t>::max()));
}

double JsonPart::number() const {
  if (value.is_number()) return value.to_number<double>();
  refuse_type("a number");
}

double JsonPart::number(std::string_view key, double otherwise) const {
  return has(key) ? at(key).number() : otherwise;
}

bool JsonPart::flag() const {
  if (const auto* flag = value.if_bool()) return *flag;
  refuse_type("true or false");
}

bool JsonPart::flag(std::string_view key, bool otherwise) const { return has(key) ? at(key).flag() : otherwise; }

}  // namespace tessera::detail
