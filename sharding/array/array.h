// Array: a global shape, an element type, a sharding, and one tensor for each local shard.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "sharding/array/index.h"
#include "sharding/base/error.h"
#include "sharding/placement/axis.h"
#include "sharding/placement/dtype.h"
#include "sharding/placement/named_sharding.h"

namespace at {
class Tensor;
}

namespace tessera {

namespace detail {
struct ArrayImpl;
}

struct Shard;
class ArrayUpdate;

// A cheap handle to an immutable value: copies share the value. An Array is in one of five states, which all have the
// same interface:
// - Committed: placed on a mesh.
// - Uncommitted: not placed. Operations treat it as replicated on the mesh of their other operands.
// - Lazy initializer (recipe): an initializer, a key and a shape. It takes no memory until it is placed or used.
// - Parameter of a tape, inside value_and_grad.
// - Absent: a filter removed it from its tree. Operations on it throw.
class Array {
 public:
  Array() = default;  // absent
  Array(const Array& x);
  Array(Array&& x) noexcept : impl_(std::move(x.impl_)) {}
  Array& operator=(const Array& x) &;
  Array& operator=(Array&& x) & noexcept;
  ~Array();
  // Diagnostics for common mistakes: assignment to a temporary, and an update in place.
  template <class T>
  void operator=(const T&) && {
    static_assert(detail::dependent_false<T>,
                  "tessera: x[0] = v would change nothing, because x[0] is a new array. Use x = x.at({0}).set(v).");
  }
  template <class T>
  void operator+=(const T&) const {
    static_assert(detail::dependent_false<T>,
                  "tessera: arrays do not change. Use x = x + v, or x = x.at({0}).add(v) for a part.");
  }

  bool is_absent() const { return impl_ == nullptr; }
  bool is_lazy() const;
  bool is_committed() const;  // placed on a mesh

  const Shape& shape() const;    // global
  int64_t shape(int dim) const;  // a negative `dim` counts from the end
  int ndim() const;
  int64_t size() const;  // the number of elements, global
  DType dtype() const;
  NamedSharding sharding() const;  // throws device_mismatch if not committed

  bool is_fully_replicated() const;   // each device stores the complete value; true if not committed
  bool is_fully_addressable() const;  // this process has all devices of the mesh
  int64_t nbytes() const;             // bytes of the complete value
  int64_t shard_bytes() const;        // bytes of one local shard, with padding

  // Returns the value, assembled from this process's devices. Nothing is communicated. T must be the C++ type of
  // dtype(); bfloat16 and float16 are read as float. Throws invalid_argument if other processes store blocks of the
  // value: gather it first (device_put.h).
  template <class T>
  std::vector<T> to_host() const;
  // Returns the value of an array with one element. To truncate or round a floating array, call astype(x, int32) or
  // astype(round(x), int32) first. (numpy's item() returns the array's own type; Python's int(x) truncates.)
  // Errors
  //   shape_mismatch: the array does not have one element
  //   dtype_mismatch: the array is floating and T is an integer or bool, whatever the value
  //   invalid_argument: T cannot hold an integer array's value exactly (float holds 2^24, but not 2^24 + 1)
  template <class T>
  T item() const;
  // Diagnostics for common mistakes: T is not an element type, is not a number, or is missing.
  template <class T>
  requires(!detail::ElementType<T>) std::vector<T> to_host() const {
    static_assert(
        detail::dependent_false<T>,
        "tessera: no array has elements of this C++ type. Give the type of the array's elements: x.to_host<float>().");
    return {};
  }
  template <class T>
  requires(!std::is_arithmetic_v<T>) T item() const {
    static_assert(detail::dependent_false<T>,
                  "tessera: item returns a number, so its type must be arithmetic: x.item<float>().");
    return {};
  }
  template <std::same_as<void>... Nothing>
  float item() const {
    static_assert(detail::dependent_false<Nothing...>, "tessera: item needs the type to read: x.item<float>().");
    return {};
  }

  // Return the shards of this process's devices, and of all devices of the mesh, in mesh order. For a device of another
  // process, `data` is absent. Throw device_mismatch if not committed.
  std::vector<Shard> addressable_shards() const;
  std::vector<Shard> global_shards() const;

  // Returns the element type, shape and sharding: "float32[8@data,4@model]{U:pipe}".
  std::string type_string() const;

  // Returns the dotted path of a parameter in its tree, which filter_shard sets, also for casts of the parameter. Empty
  // for other arrays.
  const std::string& path() const;

  // Returns the selected elements, as numpy's x[...] does. `entries` has LibTorch's form, one entry for each dimension:
  // x.index({0}), x.index({range(2, 5), ellipsis, -1}), x.index({ellipsis, newaxis}), x.index({{}, ids}).
  // - An integer selects one element and removes its dimension.
  // - An array of integers selects the same elements as take(). If other entries separate it from an integer, its
  //   dimensions come first in the result.
  // - {} selects a complete dimension, as `:` does in numpy. Omitted entries at the end do the same.
  // Along a sharded dimension, each device receives the elements of its block of the result from the devices that store
  // them. A dimension that its mesh axes no longer divide becomes replicated.
  // Throws invalid_argument for an integer out of range, more entries than dimensions, two ellipses or arrays, or a
  // step of zero.
  Array index(std::initializer_list<Index> entries, std::source_location where = std::source_location::current()) const;
  template <class T, class... More>
    requires std::integral<T>
  Array index(T, More...) const {  // a mistake
      static_assert(detail::dependent_false<T>,
                    "tessera: index takes a list of entries, one for each dimension: x.index({0, 1}).");
      return {};
  }
  // Returns x.index({entry}): x[0], x[range(2, 5)], x[ids].
  Array operator[](Index entry) const;

  // x.at({...}).set(v) and x.at({...}).add(v) return a new array with the selected elements updated, as in JAX.
  ArrayUpdate at(std::initializer_list<Index> entries,
                 std::source_location where = std::source_location::current()) const;
  // Diagnostic for a common mistake: entries without braces.
  template <std::same_as<void>... Nothing>
  Array at(Index, Index = {}, Index = {}, Index = {}, Index = {}, Index = {}) const {
    static_assert(detail::dependent_false<Nothing...>,
                  "tessera: at is for updates, and its entries need braces: x.at({0}).set(v). To read, use "
                  "x.index({0}) or x[0].");
    return {};
  }

  bool is_same(const Array& other) const { return impl_ == other.impl_; }

  explicit Array(std::shared_ptr<detail::ArrayImpl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<detail::ArrayImpl>& impl() const { return impl_; }

 private:
  std::shared_ptr<detail::ArrayImpl> impl_;
};

// The result of x.at({...}). Call set or add on it in the same expression, because it refers to x and to the entries.
//   x = x.at({0}).set(row);
//   x = x.at({range(2, 5), 1}).set(column);
//   x = x.at({{}, ids}).add(updates);
// `v` is an array or a number. Entries are as in x.index({...}). Three forms are supported; others throw
// invalid_argument:
// - One integer or one array of integers, and no other entry that selects: set and add, with the values and errors of
//   scatter_set and scatter_add (indexing.h). `v` broadcasts, and is cast to x's element type.
// - Integers and ranges of step 1: set only, by dynamic_update_slice (slicing.h). `v` must have the shape of
//   x.index({...}) (else shape_mismatch) and x's element type (else dtype_mismatch).
// - No entries: the second form, for the complete x.
class ArrayUpdate {
 public:
  ArrayUpdate(const ArrayUpdate&) = delete;
  [[nodiscard]] Array set(const Array& v) &&;
  [[nodiscard]] Array add(const Array& v) &&;
  template <class T>
    requires std::is_arithmetic_v<T>
  [[nodiscard]] Array set(T v) && {
    return std::move(*this).set(number(v));
  }
  template <class T>
    requires std::is_arithmetic_v<T>
  [[nodiscard]] Array add(T v) && {
    return std::move(*this).add(number(v));
  }
  // Diagnostic for a common mistake: an update that is stored in a variable.
  template <class T>
  void set(const T&) & {
    static_assert(detail::dependent_false<T>, "tessera: an update must be one expression: x = x.at({0}).set(v).");
  }
  template <class T>
  void add(const T&) & {
    static_assert(detail::dependent_false<T>, "tessera: an update must be one expression: x = x.at({0}).add(v).");
  }

 private:
  friend class Array;
  ArrayUpdate(const Array& x, std::initializer_list<Index> entries, std::source_location where)
      : x_(x), entries_(entries), where_(where) {}
  Array number(double v) const;  // converts v to the element type of x

  const Array& x_;
  std::initializer_list<Index> entries_;
  std::source_location where_;
};
inline ArrayUpdate Array::at(std::initializer_list<Index> entries, std::source_location where) const {
  return {*this, entries, where};
}

// The local shard of one device.
struct Shard {
  int device = 0;      // the device's id
  int process = 0;     // the process that owns the device
  IndexRanges index;   // [start, stop) of each dimension
  int replica_id = 0;  // counts the devices with the same index, from 0
  Array data;          // the block without padding, uncommitted; it shares the array's memory and has no gradient; for
                       // a partial sum, this device's term
};

// Prints the type and the values. Arrays of more than 1000 elements are abbreviated, and lazy initializers of that size
// are printed without values. If other processes store blocks of the value, prints this process's blocks.
std::ostream& operator<<(std::ostream& out, const Array& x);

// Returns an uncommitted array with the values of these bytes, in row-major order and in this machine's byte order.
// Throws shape_mismatch if their number does not fit the shape.
Array array_from_bytes(std::span<const std::byte> bytes, DType dtype, Shape shape);

// Returns an uncommitted array with these values, in row-major order. T is float, double, int8_t, int16_t, int32_t,
// int64_t, uint8_t or bool. Throws shape_mismatch if the number of values does not fit the shape.
template <class T>
Array array(std::span<const T> values, Shape shape) {
  return array_from_bytes(std::as_bytes(values), dtype_for<T>(), std::move(shape));
}
template <class T>
Array array(std::initializer_list<T> values, Shape shape) {
  return array<T>(std::span<const T>(values.begin(), values.size()), std::move(shape));
}
template <class T>
Array array(const std::vector<T>& values, Shape shape) {
  return array<T>(std::span<const T>(values), std::move(shape));
}
// Returns an uncommitted array of one dimension with these values.
template <class T>
Array array(std::initializer_list<T> values) {
  return array(values, {static_cast<int64_t>(values.size())});
}
template <class T>
Array array(const std::vector<T>& values) {
  return array(values, {static_cast<int64_t>(values.size())});
}
// Diagnostics for common mistakes: a missing or wrong element type for other ranges, a shape without braces.
template <class T = void, class Values>
requires(std::is_void_v<T> || !std::convertible_to<const Values&, std::span<const T>>) Array
    array(const Values&, const Shape&) {
  static_assert(detail::dependent_false<Values>,
                "tessera: array takes a list or a std::vector, and a shape. For other ranges, give the element type: "
                "array<float>(values, {3, 4}). To convert the elements, use astype.");
  return {};
}
template <class T = void, class Values, std::integral... Size>
requires(sizeof...(Size) > 0) Array array(const Values&, Size...) {
  static_assert(detail::dependent_false<Values>, "tessera: write a shape with braces: array(values, {3, 4}).");
  return {};
}

Array zeros(Shape shape, DType dtype = float32);  // uncommitted; creation.h has the same on a mesh
Array ones(Shape shape, DType dtype = float32);
Array full(Shape shape, double value, DType dtype = float32);
// Diagnostic for a common mistake: a shape without braces.
template <std::integral... Size>
Array zeros(Size...) {
  static_assert(detail::dependent_false<Size...>, "tessera: write a shape with braces: zeros({3, 4}).");
  return {};
}
template <std::integral... Size>
Array ones(Size...) {
  static_assert(detail::dependent_false<Size...>, "tessera: write a shape with braces: ones({3, 4}).");
  return {};
}

// from_tensor returns an uncommitted array of the tensor's values, without a copy if they are in host memory. to_tensor
// returns an array's complete value as one tensor.
Array from_tensor(const at::Tensor& tensor);
at::Tensor to_tensor(const Array& x);

// An Array with logical axis names, for fields of a batch. Converts to Array.
//   struct Batch {
//     NamedArray inputs{"batch", "seq"};
//     NamedArray targets{"batch", "seq"};
//   };
//   batch.inputs = array<int32_t>(ids, {32, 128});
struct NamedArray {
  Array value;
  Axes axes;

  template <std::convertible_to<AxisName>... Names>
  NamedArray(const Names&... names) : axes{AxisName(names)...} {}
  NamedArray& operator=(Array x) {  // keeps the names
    value = std::move(x);
    return *this;
  }
  operator const Array&() const { return value; }
};

}  // namespace tessera
