// Reads values as expected types, or throws with their place.
#include "sharding/files/json_part.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <limits>
#include <optional>

#include "sharding/base/fail.h"

namespace tessera::detail {
namespace {

const boost::json::value nothing;

const boost::json::value* member(const JsonPart& part, std::string_view key) {
  if (const auto* object = part.value.if_object()) return object->if_contains(key);
  if (!part.is_null()) part.refuse_type("an object");
  return nullptr;
}

// Returns ".normalizer.type", the path from `tree` to `wanted`, which is one of its values.
std::optional<std::string> path_to(const boost::json::value& wanted, const boost::json::value& tree) {
  if (&wanted == &tree) return "";
  if (const auto* array = tree.if_array())
    for (size_t i = 0; i < array->size(); ++i)
      if (const auto rest = path_to(wanted, (*array)[i])) return fmt::format(".{}{}", i, *rest);
  if (const auto* object = tree.if_object())
    for (const auto& [key, below] : *object)
      if (const auto rest = path_to(wanted, below)) return fmt::format(".{}{}", std::string_view(key), *rest);
  return std::nullopt;
}

}  // namespace

JsonPart::JsonPart(const boost::json::value& whole, std::string file, const char* verb, const char* advice)
    : value(whole), file_(std::make_shared<const File>(File{whole, std::move(file), verb, advice})) {}

std::string JsonPart::place() const {
  const std::string known = file_->name + path_to(owner_ ? *owner_ : value, file_->whole).value_or("");
  return owner_ ? fmt::format("{}.{}", known, missing_key_) : known;
}

void JsonPart::refuse(const std::string& what) const {
  fail(ErrorKind::invalid_file, file_->verb, "{}: {}{}", place(), what, file_->advice);
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
  if (const auto* found = object().if_contains(key)) return below(*found);
  JsonPart missing = below(nothing);
  missing.owner_ = &value;
  missing.missing_key_ = key;
  return missing;
}

size_t JsonPart::length() const {
  if (!value.is_array()) refuse_type("an array");
  return value.get_array().size();
}

JsonPart JsonPart::item(size_t i) const { return below(value.as_array()[i]); }

const boost::json::object& JsonPart::object() const {
  if (!value.is_object()) refuse_type("an object");
  return value.get_object();
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

std::vector<int64_t> JsonPart::shape() const {
  if (length() > max_dims) refuse(fmt::format("{} dimensions, expected at most {}.", length(), max_dims));
  std::vector<int64_t> sizes;
  for (const JsonPart& size : items()) sizes.push_back(size.count());
  return sizes;
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
