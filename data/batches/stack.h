// stack: turns records (numbers, vectors, arrays, structs of these) into a batch of tensors with one row per record.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "nn/tree/tree.h"

namespace tessera::data {

namespace detail {

// The C++ type in which an array stores a number: int32 for uint16 and int64 for uint32, because token files have these
// types and arrays do not; otherwise the type itself.
template <class V>
using stored =
    std::conditional_t<std::same_as<V, uint16_t>, int32_t, std::conditional_t<std::same_as<V, uint32_t>, int64_t, V>>;

template <class T>
inline constexpr bool is_row = false;
template <class V>
inline constexpr bool is_row<std::vector<V>> = std::is_arithmetic_v<V>;
template <class V, size_t n>
inline constexpr bool is_row<std::array<V, n>> = std::is_arithmetic_v<V>;

template <class T>
inline constexpr bool is_array = std::same_as<T, Array> || std::same_as<T, NamedArray>;
template <class T>
inline constexpr bool is_column = std::is_arithmetic_v<T> || is_row<T> || is_array<T>;

// An array with uninitialized memory at `data`; the caller must write all of it.
struct Unwritten {
  Array array;
  void* data;
};
Unwritten unwritten(DType dtype, Shape shape);

Array stack_arrays(const std::vector<Array>& arrays, std::string_view name);
void check_records(size_t count);
void check_length(size_t length, size_t expected, std::string_view name);

// Returns one column of a batch: value(record) of every record, one row each.
template <class T, class Get>
Array column(const std::vector<T>& records, std::string_view name, Get value) {
  using V = std::decay_t<decltype(value(records.front()))>;
  check_records(records.size());
  const auto count = static_cast<int64_t>(records.size());
  if constexpr (std::is_arithmetic_v<V>) {
    const Unwritten out = unwritten(dtype_for<stored<V>>(), {count});
    auto* to = static_cast<stored<V>*>(out.data);
    for (const T& record : records) *to++ = static_cast<stored<V>>(value(record));
    return out.array;
  } else if constexpr (is_row<V>) {
    using Number = stored<typename V::value_type>;
    const size_t length = value(records.front()).size();
    const Unwritten out = unwritten(dtype_for<Number>(), {count, static_cast<int64_t>(length)});
    auto* to = static_cast<Number*>(out.data);
    for (const T& record : records) {
      const V& row = value(record);
      check_length(row.size(), length, name);
      to = std::copy(row.begin(), row.end(), to);
    }
    return out.array;
  } else {
    static_assert(is_array<V>, "tessera: stack takes numbers, vectors and std::arrays of numbers, and arrays.");
    std::vector<Array> arrays;
    for (const T& record : records) arrays.push_back(value(record));
    return stack_arrays(arrays, name);
  }
}

template <class T>
constexpr bool has_arrays_only() {
  if constexpr (nn::detail::is_leaf<T>)
    return true;
  else if constexpr (nn::detail::is_sequence<T>)
    return has_arrays_only<typename T::value_type>();
  else if constexpr (nn::detail::is_static<T> || nn::detail::is_container<T>)
    return false;
  else
    return []<size_t... i>(std::index_sequence<i...>) {
      return (has_arrays_only<std::decay_t<boost::pfr::tuple_element_t<i, T>>>() && ...);
    }
  (std::make_index_sequence<nn::detail::field_count<T>>());
}

template <class T>
T stack_struct(const std::vector<T>& records) {
  static_assert(
      has_arrays_only<T>(),
      "tessera: stack needs a struct of arrays only. For others, give the type of the batch: stack_as<Batch>.");
  check_records(records.size());
  T batch = records.front();
  std::vector<nn::Leaves> leaves;
  for (const T& record : records) leaves.push_back(nn::leaves(record));
  nn::Leaves rows = nn::leaves(batch);
  for (const auto& of_record : leaves) check_length(of_record.size(), rows.size(), "arrays of a record");
  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<Array> arrays;
    for (const auto& of_record : leaves) arrays.push_back(*of_record[i].value);
    *rows[i].value = stack_arrays(arrays, rows[i].path);
  }
  return batch;
}

template <class Record>
constexpr size_t field_named(std::string_view name) {
  constexpr auto& names = nn::detail::field_names<Record>;
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return i;
  return names.size();
}

template <class Batch, size_t i, class Record>
Array stack_field(const std::vector<Record>& records) {
  constexpr std::string_view name = nn::detail::field_names<Batch>[i];
  constexpr size_t from = field_named<Record>(name);
  static_assert(from < nn::detail::field_count<Record>,
                "tessera: stack_as<Batch>: each field of the batch needs a field of the same name in the record.");
  return column(
      records, name, [](const Record& r) -> const auto& { return boost::pfr::get<from>(r); });
}

}  // namespace detail

// Stacks B records into a batch, by the type of the records. The arrays are not placed on a mesh.
//   numbers                          an Array of shape (B)
//   vector or std::array of n        (B, n)
//   Array of shape (...)             (B, ...)
//   pair, tuple                      a tuple of these
//   struct of Arrays, NamedArrays    the same struct; each array gets a new dimension 0 of size B. A NamedArray must
//   name
//                                    the batch's dimensions: NamedArray image{"batch", "height", "width"}, even though
//                                    it has shape (h, w) in a record
// Errors (shape_mismatch), which name the field: rows of different lengths or shapes; no records.
struct Stack {
  template <class T>
  auto operator()(const std::vector<T>& records) const {
    if constexpr (detail::is_column<T>)
      return detail::column(records, "records", [](const T& record) -> const T& { return record; });
    else if constexpr (nn::detail::is_specialization<T, std::pair> || nn::detail::is_specialization<T, std::tuple>)
      return parts(records, std::make_index_sequence<std::tuple_size_v<T>>());
    else
      return detail::stack_struct(records);
  }

 private:
  template <class T, size_t... i>
  static auto parts(const std::vector<T>& records, std::index_sequence<i...>) {
    return std::tuple{detail::column(
        records, "records", [](const T& r) -> const auto& { return std::get<i>(r); })...};
  }
};
inline constexpr Stack stack;

// Stacks records into a struct of another type, whose fields are arrays with named dimensions. Each field stacks the
// field of the same name of the records, which are structs of any type:
//   struct Example { std::vector<float> pixels;  int32_t digit; };
//   struct Batch { NamedArray pixels{"batch", "pixel"};  NamedArray digit{"batch"}; };
//   Loader loader(examples, stack_as<Batch>, {.batch_size = 32});
// A field of the batch that the record lacks is a compile error. Errors: as stack.
template <class Batch>
struct StackAs {
  template <class Record>
  Batch operator()(const std::vector<Record>& records) const {
    Batch batch;
    [&]<size_t... i>(std::index_sequence<i...>) {
      ((boost::pfr::get<i>(batch) = detail::stack_field<Batch, i>(records)), ...);
    }
    (std::make_index_sequence<nn::detail::field_count<Batch>>());
    return batch;
  }
};
template <class Batch>
inline constexpr StackAs<Batch> stack_as;

}  // namespace tessera::data
