// Finds the scalars of a tree, writes them as JSON, and restores them into their fields.
#include "nn/tree/tree_scalars.h"

#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "sharding/base/fail.h"
#include "sharding/files/json.h"

namespace tessera::nn {
namespace {

namespace json = boost::json;

// Reads the field's bytes as a number of type T.
template <class T>
T load(const Scalar& scalar) {
  T value{};
  std::memcpy(&value, scalar.value, sizeof value);
  return value;
}
template <class T>
void store(const Scalar& scalar, T value) {
  std::memcpy(scalar.value, &value, sizeof value);
}

// Calls f(T()) with the integer type T of the scalar's size; with_floating does so with the floating type.
template <class F>
auto with_integer(const Scalar& scalar, F f) {
  const bool has_sign = scalar.kind == ScalarKind::integer;
  switch (scalar.size) {
    case 1:
      return has_sign ? f(int8_t()) : f(uint8_t());
    case 2:
      return has_sign ? f(int16_t()) : f(uint16_t());
    case 4:
      return has_sign ? f(int32_t()) : f(uint32_t());
    default:
      return has_sign ? f(int64_t()) : f(uint64_t());
  }
}
template <class F>
auto with_floating(const Scalar& scalar, F f) {
  if (scalar.size == sizeof(float)) return f(float());
  if (scalar.size == sizeof(double)) return f(double());
  return f(static_cast<long double>(0));
}

json::value of_double(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  return x;
}

std::optional<double> double_in(const json::value& value) {
  if (value.is_number()) return value.to_number<double>();
  if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (value == "inf") return std::numeric_limits<double>::infinity();
  if (value == "-inf") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

std::optional<uint32_t> uint32_in(const json::value& value) {
  if (!value.is_int64() || value.get_int64() < 0 || value.get_int64() > std::numeric_limits<uint32_t>::max())
    return std::nullopt;
  return static_cast<uint32_t>(value.get_int64());
}

json::value value_of(const Scalar& scalar) {
  switch (scalar.kind) {
    case ScalarKind::boolean:
      return load<bool>(scalar);
    case ScalarKind::floating:
      return with_floating(scalar, [&](auto t) { return of_double(static_cast<double>(load<decltype(t)>(scalar))); });
    case ScalarKind::text:
      return json::value(*static_cast<const std::string*>(scalar.value));
    case ScalarKind::key: {
      const auto& data = static_cast<const Key*>(scalar.value)->data;
      return json::array{data[0], data[1]};
    }
    default:
      return with_integer(scalar, [&](auto t) { return json::value(load<decltype(t)>(scalar)); });
  }
}

const char* description_of(ScalarKind kind) {
  switch (kind) {
    case ScalarKind::boolean:
      return "true or false";
    case ScalarKind::floating:
      return "a number";
    case ScalarKind::text:
      return "a string";
    case ScalarKind::key:
      return "two whole numbers below 2^32";
    default:
      return "a whole number";
  }
}

int64_t number_in(const Scalar& scalar) {
  return with_integer(scalar, [&](auto t) { return static_cast<int64_t>(load<decltype(t)>(scalar)); });
}

bool set_integer(const Scalar& scalar, const json::value& value) {
  return with_integer(scalar, [&](auto t) {
    boost::system::error_code error;
    const auto exact = value.is_int64() || value.is_uint64() ? value.to_number<decltype(t)>(error) : t;
    if (!value.is_number() || value.is_double() || error) return false;
    if (scalar.has_enumerator && !scalar.has_enumerator(static_cast<int64_t>(exact))) return false;
    store(scalar, exact);
    return true;
  });
}

bool set_key(const Scalar& scalar, const json::value& value) {
  const json::array* numbers = value.if_array();
  if (!numbers || numbers->size() != 2) return false;
  const auto high = uint32_in((*numbers)[0]), low = uint32_in((*numbers)[1]);
  if (!high || !low) return false;
  *static_cast<Key*>(scalar.value) = Key::from_data(*high, *low);
  return true;
}

bool set_floating(const Scalar& scalar, const json::value& value) {
  const auto x = double_in(value);
  if (x) with_floating(scalar, [&](auto t) { store(scalar, static_cast<decltype(t)>(*x)); });
  return x.has_value();
}

bool set_value(const Scalar& scalar, const json::value& value) {
  switch (scalar.kind) {
    case ScalarKind::boolean:
      if (value.is_bool()) store(scalar, value.get_bool());
      return value.is_bool();
    case ScalarKind::floating:
      return set_floating(scalar, value);
    case ScalarKind::text:
      if (value.is_string()) *static_cast<std::string*>(scalar.value) = std::string(value.get_string());
      return value.is_string();
    case ScalarKind::key:
      return set_key(scalar, value);
    default:
      return set_integer(scalar, value);
  }
}

}  // namespace

Scalars detail::scalars_of(const Parts& parts) {
  Scalars scalars;
  const auto add = [&](std::string path, const PartType& type, void* value) {
    if (type.kind == ScalarKind::none) return;
    const Scalar& scalar =
        scalars.emplace_back(Scalar{std::move(path), type.kind, type.size, value, type.has_enumerator});
    if (scalar.has_enumerator && !scalar.has_enumerator(number_in(scalar)))
      fail(
          ErrorKind::invalid_argument, "named_state",
          "{}: {} given for an enum, expected one of its enumerators, from 0 to {}. Store other numbers in an integer.",
          scalar.path, number_in(scalar), max_enumerator);
  };
  for (const Part& part : parts) {
    size_t i = 0;
    if (!part.type->element)
      add(part.path, *part.type, part.node);
    else if (part.type->for_each)
      part.type->for_each(part.node,
                          [&](void* item) { add(fmt::format("{}.{}", part.path, i++), *part.type->element, item); });
    else
      fail(ErrorKind::invalid_argument, "named_state",
           part.path + ": a std::vector<bool> given, which has no values to point to. Make it a std::vector<uint8_t>.");
  }
  return scalars;
}

std::string Scalar::to_json() const { return json::serialize(value_of(*this)); }

void Scalar::set_json(std::string_view text) const {
  if (!set_value(*this, parse_json(text, "restore", path)))
    fail(ErrorKind::invalid_file, "restore", "{}: {} given, expected {} that fits {} bytes{}.", path, text,
         description_of(kind), size, has_enumerator ? " and is an enumerator" : "");
}

}  // namespace tessera::nn
