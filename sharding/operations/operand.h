// Operand: an array as an operation takes it, with the line it was written on.
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

// Every operation takes arrays of any placement and gives the same value and gradient as on one device. Where the
// operands' placements agree, nothing moves; where they disagree, docs/sharding.md says which operand moves, and the
// ledger records it. Operands that were never placed join the mesh of the others as replicated.
// Errors of all: shapes that do not fit (shape_mismatch), arrays on different meshes (device_mismatch), absent arrays.

// An array as an operand, with the source line of the call. A non-owning view of the array: use it as a parameter only.
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

// A number as an operand, weakly typed as in JAX: it takes the array's element type where that can hold its kind of
// number. A fraction makes float32 of integers and booleans, a whole number int32 of booleans.
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

// An operand that is an array or a number. Non-owning, as Operand is.
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

// Where the result shall lie, as in JAX: matmul(a, b, {.out_sharding = P{"data", none}}), on the mesh of the operands.
// Works like with_sharding_constraint on the result: a pending sum is scattered where the spec shards it, and stays
// pending over the mesh axes that the spec leaves unreduced.
struct ResultOptions {
  std::optional<PartitionSpec> out_sharding = std::nullopt;
};

// Dims of an array; a negative one counts from the end. One needs no braces: sum(x, -1), sum(x, {0, 1}).
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
