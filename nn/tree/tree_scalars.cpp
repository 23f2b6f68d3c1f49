// Numbers as JSON, and back into the field they came from.
#include "nn/tree/tree_scalars.h"

#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "sharding/files/json.h"

namespace tessera::nn {
namespace {

namespace json = boost::json;

// The field's bytes as a number of type T.
template <class T>
T load(const Number& number) {
  T value{};
  std::memcpy(&value, number.value, sizeof value);
  return value;
}
template <class T>
void store(const Number& number, T value) {
  std::memcpy(number.value, &value, sizeof value);
}

// f(T()) for the integer, or floating, type T of so many bytes.
template <class F>
auto with_integer(const Number& number, F f) {
  const bool has_sign = number.kind == NumberKind::integer;
  switch (number.size) {
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
auto with_floating(const Number& number, F f) {
  if (number.size == sizeof(float)) return f(float());
  if (number.size == sizeof(double)) return f(double());
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

std::optional<uint32_t> word_in(const json::value& value) {
  if (!value.is_int64() || value.get_int64() < 0 || value.get_int64() > std::numeric_limits<uint32_t>::max())
    return std::nullopt;
  return static_cast<uint32_t>(value.get_int64());
}

json::value value_of(const Number& number) {
  switch (number.kind) {
    case NumberKind::boolean:
      return load<bool>(number);
    case NumberKind::floating:
      return with_floating(number, [&](auto t) { return of_double(static_cast<double>(load<decltype(t)>(number))); });
    case NumberKind::text:
      return json::value(*static_cast<const std::string*>(number.value));
    case NumberKind::key: {
      const auto& data = static_cast<const Key*>(number.value)->data;
      return json::array{data[0], data[1]};
    }
    default:
      return with_integer(number, [&](auto t) { return json::value(load<decltype(t)>(number)); });
  }
}

const char* words_for(NumberKind kind) {
  switch (kind) {
    case NumberKind::boolean:
      return "true or false";
    case NumberKind::floating:
      return "a number";
    case NumberKind::text:
      return "a string";
    case NumberKind::key:
      return "two whole numbers below 2^32";
    default:
      return "a whole number";
  }
}

bool set_integer(const Number& number, const json::value& value) {
  return with_integer(number, [&](auto t) {
    boost::system::error_code error;
    const auto exact = value.is_int64() || value.is_uint64() ? value.to_number<decltype(t)>(error) : t;
    if (!value.is_number() || value.is_double() || error) return false;
    store(number, exact);
    return true;
  });
}

bool set_key(const Number& number, const json::value& value) {
  const json::array* words = value.if_array();
  if (!words || words->size() != 2) return false;
  const auto high = word_in((*words)[0]), low = word_in((*words)[1]);
  if (!high || !low) return false;
  *static_cast<Key*>(number.value) = Key::from_data(*high, *low);
  return true;
}

bool set_floating(const Number& number, const json::value& value) {
  const auto x = double_in(value);
  if (x) with_floating(number, [&](auto t) { store(number, static_cast<decltype(t)>(*x)); });
  return x.has_value();
}

bool set_value(const Number& number, const json::value& value) {
  switch (number.kind) {
    case NumberKind::boolean:
      if (value.is_bool()) store(number, value.get_bool());
      return value.is_bool();
    case NumberKind::floating:
      return set_floating(number, value);
    case NumberKind::text:
      if (value.is_string()) *static_cast<std::string*>(number.value) = std::string(value.get_string());
      return value.is_string();
    case NumberKind::key:
      return set_key(number, value);
    default:
      return set_integer(number, value);
  }
}

}  // namespace

std::string Number::to_json() const { return json::serialize(value_of(*this)); }

void Number::set_json(std::string_view text) const {
  if (!set_value(*this, parse_json(text, "restore", path)))
    fail(ErrorKind::bad_file, "restore",
         fmt::format("{}: {} given, expected {} that fits {} bytes.", path, text, words_for(kind), size));
}

}  // namespace tessera::nn
