// Operand: an array parameter of an operation, together with the source line of the call.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <source_location>
#include <type_traits>
#include <vector>

#include "sharding/array/array.h"
#include "sharding/placement/partition_spec.h"

namespace tessera {

// Every operation accepts arrays of any sharding and returns the same value and gradient as on one device. If the
// operands' shardings agree, nothing is communicated. Otherwise docs/conflicts.md specifies which operand is resharded,
// and the ledger records it. Operands that were never placed are treated as replicated on the mesh of the others.
//
// Errors of every operation
//   shape_mismatch: shapes that do not fit
//   device_mismatch: arrays on different meshes
//   missing_array: absent arrays

// A non-owning view of an array, with the source line of the call. Use it as a parameter only.
class Operand {
 public:
  template <class T>
  requires std::convertible_to<const T&, const Array&> Operand(
      const T& x, std::source_location where = std::source_location::current())
      : array_(static_cast<const Array&>(x)), where_(where) {}
  const Array& array() const { return array_; }
  const std::source_location& where() const { return where_; }

 private:
  const Array& array_;
  std::source_location where_;
};

// A number as an operand, weakly typed as in JAX. It takes the array's element type if that can hold its kind of
// number. A floating-point number and an array of integers or booleans give float32. An integer and booleans give
// int32.
struct Number {
  enum class Kind : uint8_t { boolean, integer, floating };
  Kind kind;
  double floating;      // the value
  int64_t integer = 0;  // the exact value of a boolean or an integer

  template <std::integral T>
  Number(T x)
      : kind(std::same_as<T, bool> ? Kind::boolean : Kind::integer),
        floating(static_cast<double>(x)),
        integer(static_cast<int64_t>(x)) {}
  template <std::floating_point T>
  Number(T x) : kind(Kind::floating), floating(static_cast<double>(x)) {}
};

// An operand that is an array or a number; non-owning, as Operand.
class ArrayOrNumber {
 public:
  template <class T>
    requires std::convertible_to<const T&, const Array&>
  ArrayOrNumber(const T& x, std::source_location where = std::source_location::current())
      : array_(&static_cast<const Array&>(x)), where_(where) {}
  ArrayOrNumber(const Operand& x) : array_(&x.array()), where_(x.where()) {}
  ArrayOrNumber(const Number& x, std::source_location where = std::source_location::current())
      : number_(x), where_(where) {}
  template <class T>
    requires std::is_arithmetic_v<T>
  ArrayOrNumber(T x, std::source_location where = std::source_location::current()) : number_(x), where_(where) {}

  bool is_number() const { return !array_; }
  const Number& number() const { return number_; }
  const Array& array() const { return *array_; }
  Operand operand() const { return {*array_, where_}; }
  const std::source_location& where() const { return where_; }

 private:
  const Array* array_ = nullptr;
  Number number_ = 0;
  std::source_location where_;
};

// The sharding of a result on the mesh of the operands, as in JAX: matmul(a, b, {.out_sharding = P{"data", none}}).
// Works like with_sharding_constraint on the result: a partial sum is reduce-scattered where the spec shards it, and
// stays a partial sum over the unreduced mesh axes of the spec.
struct ResultOptions {
  std::optional<PartitionSpec> out_sharding = std::nullopt;
};

// Dimensions of an array; a negative one counts from the end. A single one needs no braces: sum(x, -1), sum(x, {0, 1}).
struct Dims : std::vector<int> {
  using vector::vector;
  Dims(std::vector<int> dims) : vector(std::move(dims)) {}
  template <std::integral Dim>
  requires(!std::same_as<Dim, bool>) Dims(Dim dim) : vector{static_cast<int>(dim)} {}
};

namespace detail {

Dims consecutive_dims(int n, int first = 0);

}  // namespace detail

}  // namespace tessera
