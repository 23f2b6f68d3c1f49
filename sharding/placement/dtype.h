// The element types of arrays, and JAX's promotion between them.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string_view>
#include <type_traits>

namespace tessera {

// The element types. Their values equal c10::ScalarType's (LibTorch), so that a conversion is a cast.
enum class DType : int8_t {
  uint8 = 0,
  int8 = 1,
  int16 = 2,
  int32 = 3,
  int64 = 4,
  float16 = 5,
  float32 = 6,
  float64 = 7,
  boolean = 11,
  bfloat16 = 15,
};

using enum DType;

// Returns the bytes of one element.
int64_t item_size(DType dtype);

// Returns JAX's name: "float32", "bool", ...
std::string_view name_of(DType dtype);
std::ostream& operator<<(std::ostream& out, DType dtype);

// Returns the element type of that name, or nullopt.
std::optional<DType> dtype_of(std::string_view name);

// Returns true for float16, bfloat16, float32 and float64.
constexpr bool is_floating(DType dtype) {
  return dtype == DType::float16 || dtype == DType::bfloat16 || dtype == DType::float32 || dtype == DType::float64;
}

// Returns the type of a + b for arrays of these types: the join in JAX's promotion lattice
// (https://docs.jax.dev/en/latest/type_promotion.html), where int + float16 is float16 and float16 + bfloat16 is
// float32.
DType promote(DType a, DType b);

// Returns the DType of a C++ element type: float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, bool.
template <class T>
constexpr DType dtype_for() {
  if constexpr (std::is_same_v<T, float>)
    return DType::float32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::float64;
  else if constexpr (std::is_same_v<T, int8_t>)
    return DType::int8;
  else if constexpr (std::is_same_v<T, int16_t>)
    return DType::int16;
  else if constexpr (std::is_same_v<T, int32_t>)
    return DType::int32;
  else if constexpr (std::is_same_v<T, int64_t>)
    return DType::int64;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return DType::uint8;
  else if constexpr (std::is_same_v<T, bool>)
    return DType::boolean;
  else
    static_assert(!sizeof(T), "tessera: the element type must be float, double, bool, uint8_t, or int8_t to int64_t.");
}

namespace detail {

template <class T>
concept ElementType =
    std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, int8_t> || std::is_same_v<T, int16_t> ||
    std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t> || std::is_same_v<T, uint8_t> || std::is_same_v<T, bool>;

}  // namespace detail
}  // namespace tessera
