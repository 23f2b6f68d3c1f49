// Value ranges and byte sizes of element types.
#include "sharding/placement/element_value.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sharding/base/fail.h"
#include "sharding/placement/shape.h"

namespace tessera::detail {
namespace {

template <class T>
constexpr Bounds bounds() {
  return {std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};
}

}  // namespace

Bounds bounds_of(DType dtype) {
  switch (dtype) {
    case DType::uint8:
      return bounds<uint8_t>();
    case DType::int8:
      return bounds<int8_t>();
    case DType::int16:
      return bounds<int16_t>();
    case DType::int32:
      return bounds<int32_t>();
    default:
      return bounds<int64_t>();
  }
}

void refuse_number(const char* verb, const std::string& number, DType dtype) {
  const Bounds b = bounds_of(dtype);
  fail(ErrorKind::invalid_argument, verb,
       "the number {} given for {}, expected {} to {}. Use another, or convert with astype.", number, name_of(dtype),
       b.least, b.most);
}

double element_value(const char* verb, double value, DType dtype) {
  if (dtype == boolean) return value != 0;
  if (dtype == float64) return value;
  if (is_floating(dtype)) {
    const auto single = static_cast<float>(value);
    if (dtype == float16) return static_cast<float>(c10::Half(single));
    return dtype == bfloat16 ? static_cast<float>(c10::BFloat16(single)) : single;
  }
  const Bounds b = bounds_of(dtype);
  const double whole = std::trunc(value);
  // A double cannot hold every `most`, but it holds the power of two above it.
  if (!(whole >= static_cast<double>(b.least) && whole < static_cast<double>(b.most / 2 + 1) * 2))
    refuse_number(verb, fmt::format("{}", value), dtype);
  return whole;
}

int64_t element_value(const char* verb, int64_t value, DType dtype) {
  if (dtype == boolean) return value != 0;
  if (is_floating(dtype)) return value;
  const Bounds b = bounds_of(dtype);
  if (value < b.least || value > b.most) refuse_number(verb, fmt::format("{}", value), dtype);
  return value;
}

double fill_value(const char* verb, double value, DType dtype) {
  const double element = element_value(verb, value, dtype);
  if (!is_floating(dtype) && dtype != boolean && element != value)
    fail(ErrorKind::invalid_argument, verb,
         "the number {} given for {}, expected a whole number. Round it, or use a floating type.", value,
         name_of(dtype));
  return element;
}

void check_size(const char* verb, DType dtype, std::span<const int64_t> shape) {
  int64_t bytes = item_size(dtype);
  for (int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes))
      fail(ErrorKind::invalid_argument, verb, "the shape {} given, expected sizes from 0 and fewer than 2^63 bytes.",
           to_string(Shape(shape.begin(), shape.end())));
}

}  // namespace tessera::detail
