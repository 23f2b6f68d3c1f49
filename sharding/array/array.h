// Array: a global shape, an element type, a placement, and one tensor for each distinct block of it.
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
#include "sharding/base/dependent_false.h"
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

// A cheap handle to an immutable value: copies share it. Five kinds of Array look alike to their users:
// placed on a mesh (committed), not placed (uncommitted: it joins its partners' mesh as replicated), a recipe
// (initializer, key, shape: no memory until it is placed or used), a parameter of a tape inside value_and_grad,
// and absent (filtered out of its tree: an operation on it is an Error).
class Array {
 public:
  Array() = default;  // absent
  Array(const Array& x);
  Array(Array&& x) noexcept : impl_(std::move(x.impl_)) {}
  Array& operator=(const Array& x) &;
  Array& operator=(Array&& x) & noexcept;
  ~Array();
  // A mistake: assignment to a temporary.
  template <class T>
  void operator=(const T&) && {
    static_assert(detail::dependent_false<T>,
                  "tessera: x[0] = v would change nothing, since x[0] is a new array. Use x = x.at({0}).set(v).");
  }

  bool is_absent() const { return impl_ == nullptr; }
  bool is_recipe() const;
  bool is_committed() const;  // placed on a mesh

  const Shape& shape() const;    // global, whatever the placement
  int64_t shape(int dim) const;  // negative counts from the end
  int ndim() const;
  int64_t size() const;  // elements, global
  DType dtype() const;
  NamedSharding sharding() const;  // Error (device_mismatch) if not committed

  bool is_fully_replicated() const;   // every device holds the whole value; so does the host, if not committed
  bool is_fully_addressable() const;  // this process has all devices of the mesh
  int64_t nbytes() const;             // of the whole value
  int64_t shard_bytes() const;        // of what one device holds, padding included

  // The value, assembled from this process's devices; nothing is communicated. Error (invalid_argument) if other
  // processes hold parts of it: gather it first (device_put.h). T must be the C++ type of dtype() (bfloat16 and float16
  // are read as float).
  template <class T>
  std::vector<T> to_host() const;
  // The value of an array with one element, as a T of its kind: a floating T for floating types; of integers any T that
  // holds the value, else an Error (invalid_argument): float holds 2^24, not 2^24 + 1. A floating array as an integer
  // or as a bool is an Error (dtype_mismatch), whatever its value: say what becomes of a fraction, by astype(x, int32),
  // which drops it, or astype(round(x), int32). (numpy's item() has the array's own type; int(x) of Python drops it.)
  template <class T>
  T item() const;
  // Mistakes: a type that no array has, one that is no number, and none.
  template <class T>
  requires(!detail::ElementType<T>) std::vector<T> to_host() const {
    static_assert(detail::dependent_false<T>,
                  "tessera: no array has elements of this C++ type: read it as its own, x.to_host<float>().");
    return {};
  }
  template <class T>
  requires(!std::is_arithmetic_v<T>) T item() const {
    static_assert(detail::dependent_false<T>,
                  "tessera: item reads a number, of the type that it is given: x.item<float>().");
    return {};
  }
  template <std::same_as<void>... Nothing>
  float item() const {
    static_assert(detail::dependent_false<Nothing...>, "tessera: item needs the type to read: x.item<float>().");
    return {};
  }

  // The shards of this process's devices, and those of all devices of the mesh, in mesh order; `data` is absent for a
  // device of another process. Error (device_mismatch) if not committed.
  std::vector<Shard> addressable_shards() const;
  std::vector<Shard> global_shards() const;

  // float32[8@data,4@model]{U:pipe}
  std::string type_string() const;

  // The dotted path that filter_shard stamped on a parameter; empty elsewhere.
  const std::string& path() const;

  // Returns numpy's x[...], written as in LibTorch, with one entry for each dim: x.index({0}),
  // x.index({range(2, 5), ellipsis, -1}), x.index({ellipsis, newaxis}), x.index({{}, ids}).
  // - An integer selects one element and removes its dim.
  // - An array of integers selects what take() does. If other entries separate it from an integer, its dims come first
  //   in the result.
  // - {} selects all of a dim, as do entries that are omitted at the end.
  // Along a sharded dim each device receives the elements of its block of the result from the devices that hold them. A
  // dim that its mesh axes no longer divide becomes replicated.
  // Errors (invalid_argument): an integer out of range, more entries than dims, two ellipses or arrays, a step of zero.
  Array index(std::initializer_list<Index> entries, std::source_location where = std::source_location::current()) const;
  template <class T, class... More>
    requires std::integral<T>
  Array index(T, More...) const {  // a mistake
      static_assert(detail::dependent_false<T>,
                    "tessera: index takes a list of entries, one for each dim: x.index({0, 1}).");
      return {};
  }
  // Returns x.index({entry}): x[0], x[range(2, 5)], x[ids].
  Array operator[](Index entry) const;

  // x.at({...}).set(v) and x.at({...}).add(v) return a new array with the selected elements updated, as in JAX.
  ArrayUpdate at(std::initializer_list<Index> entries,
                 std::source_location where = std::source_location::current()) const;
  // A mistake: entries without braces.
  template <std::same_as<void>... Nothing>
  Array at(Index, Index = {}, Index = {}, Index = {}, Index = {}, Index = {}) const {
    static_assert(detail::dependent_false<Nothing...>,
                  "tessera: at updates, and takes braces: x.at({0}).set(v). To read, use x.index({0}) or x[0].");
    return {};
  }

  bool is_same(const Array& other) const { return impl_ == other.impl_; }

  explicit Array(std::shared_ptr<detail::ArrayImpl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<detail::ArrayImpl>& impl() const { return impl_; }

 private:
  std::shared_ptr<detail::ArrayImpl> impl_;
};

// The result of x.at({...}), which updates elements of x. Call set or add on it in the same expression: it refers to x
// and to the entries.
//   x = x.at({0}).set(row);
//   x = x.at({range(2, 5), 1}).set(column);
//   x = x.at({{}, ids}).add(updates);
// `v` is an array or a number. Entries as in x.index({...}). Three forms are supported; any others are an Error (invalid_argument):
// - One integer or one array of integers, and nothing else that selects: set and add, with values and errors of
//   scatter_set and scatter_add (indexing.h). `v` broadcasts, and is cast to x's element type.
// - Integers and ranges of step 1: set only, by dynamic_update_slice (update_slice.h). `v` has the shape of
//   x.index({...}) (else shape_mismatch) and x's element type (else dtype_mismatch).
// - No entries: the same for all of x.
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
  // A mistake: an update that is kept in a variable.
  template <class T>
  void set(const T&) & {
    static_assert(detail::dependent_false<T>, "tessera: an update is one expression: x = x.at({0}).set(v).");
  }
  template <class T>
  void add(const T&) & {
    static_assert(detail::dependent_false<T>, "tessera: an update is one expression: x = x.at({0}).add(v).");
  }

 private:
  friend class Array;
  ArrayUpdate(const Array& x, std::initializer_list<Index> entries, std::source_location where)
      : x_(x), entries_(entries), where_(where) {}
  Array number(double v) const;  // of x's element type

  const Array& x_;
  std::initializer_list<Index> entries_;
  std::source_location where_;
};
inline ArrayUpdate Array::at(std::initializer_list<Index> entries, std::source_location where) const {
  return {*this, entries, where};
}

// What one device holds of an array.
struct Shard {
  int device = 0;      // device id
  int process = 0;     // the process that has it
  IndexRanges index;   // [start, stop) of every dim
  int replica_id = 0;  // counts the devices with the same index, from 0
  Array data;          // the block without padding, uncommitted; it shares the array's memory and has no gradient. Of
                       // a pending sum it is this device's part of the sum.
};

// Prints the type, and the values of small arrays; where other processes have parts of the value, this one's shards.
std::ostream& operator<<(std::ostream& out, const Array& x);

// An uncommitted array with the values of these raw bytes in this machine's byte order, as files hold them.
Array array_from_bytes(std::span<const std::byte> bytes, DType dtype, Shape shape);

// An uncommitted array with these values, in row-major order. Error (shape_mismatch) if their number is not that of the
// shape. T: float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, bool.
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
// Without a shape, of one dim.
template <class T>
Array array(std::initializer_list<T> values) {
  return array(values, {static_cast<int64_t>(values.size())});
}
template <class T>
Array array(const std::vector<T>& values) {
  return array(values, {static_cast<int64_t>(values.size())});
}
// Mistakes: other ranges without the type of their elements or with another one, sizes without braces.
template <class T = void, class Values>
requires(std::is_void_v<T> || !std::convertible_to<const Values&, std::span<const T>>) Array
    array(const Values&, const Shape&) {
  static_assert(detail::dependent_false<Values>,
                "tessera: array takes a list or a std::vector, and a shape; for another range give the type of its "
                "elements: array<float>(values, {3, 4}). Another type is astype's.");
  return {};
}
template <class T = void, class Values, std::integral... Size>
requires(sizeof...(Size) > 0) Array array(const Values&, Size...) {
  static_assert(detail::dependent_false<Values>, "tessera: a shape has braces: array(values, {3, 4}).");
  return {};
}

Array zeros(Shape shape, DType dtype = float32);  // these three are not placed; those of creation.h are
Array ones(Shape shape, DType dtype = float32);
Array full(Shape shape, double value, DType dtype = float32);
// A mistake: sizes without braces.
template <std::integral... Size>
Array zeros(Size...) {
  static_assert(detail::dependent_false<Size...>, "tessera: a shape has braces: zeros({3, 4}).");
  return {};
}
template <std::integral... Size>
Array ones(Size...) {
  static_assert(detail::dependent_false<Size...>, "tessera: a shape has braces: ones({3, 4}).");
  return {};
}

// A LibTorch tensor as an uncommitted array (no copy), and back: the whole value as one tensor.
Array from_tensor(const at::Tensor& tensor);
at::Tensor to_tensor(const Array& x);

// An Array whose dims have names, as the fields of a batch do. Usable wherever an Array is.
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
  NamedArray& operator=(Array x) {  // the names stay
    value = std::move(x);
    return *this;
  }
  operator const Array&() const { return value; }
};

}  // namespace tessera
