// Read as what they have to be, or refused by their place.
#include "sharding/files/json_part.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "sharding/diagnostics/fail.h"

namespace tessera::detail {

void JsonPart::refuse(const std::string& what) const { fail(ErrorKind::bad_file, verb, "{}: {}", place, what); }

JsonPart JsonPart::at(const std::string& key) const {
  const auto* object = value.if_object();
  const auto* found = object ? object->if_contains(key) : nullptr;
  if (!found) refuse(fmt::format("has no \"{}\".", key));
  return {*found, fmt::format("{}.{}", place, key), verb};
}

std::vector<JsonPart> JsonPart::items() const {
  const auto* array = value.if_array();
  if (!array) refuse("given something else, expected an array.");
  std::vector<JsonPart> items;
  for (size_t i = 0; i < array->size(); ++i) items.push_back({(*array)[i], fmt::format("{}.{}", place, i), verb});
  return items;
}

std::string JsonPart::text() const {
  if (const auto* text = value.if_string()) return std::string(*text);
  refuse("given something else, expected a string.");
}

int64_t JsonPart::integer() const {
  if (const auto* number = value.if_int64()) return *number;
  refuse("given something else, expected an integer.");
}

int64_t JsonPart::integer(const std::string& key, int64_t otherwise) const {
  return has(key) ? at(key).integer() : otherwise;
}

double JsonPart::number() const {
  if (value.is_number()) return value.to_number<double>();
  refuse("given something else, expected a number.");
}

double JsonPart::number(const std::string& key, double otherwise) const {
  return has(key) ? at(key).number() : otherwise;
}

bool JsonPart::has(const std::string& key) const {
  const auto* object = value.if_object();
  const auto* found = object ? object->if_contains(key) : nullptr;
  return found && !found->is_null();
}

bool JsonPart::flag(const std::string& key, bool otherwise) const {
  if (!has(key)) return otherwise;
  const JsonPart part = at(key);
  if (const auto* flag = part.value.if_bool()) return *flag;
  part.refuse("given something else, expected true or false.");
}

std::string JsonPart::text(const std::string& key, const std::string& otherwise) const {
  return has(key) ? at(key).text() : otherwise;
}

}  // namespace tessera::detail
