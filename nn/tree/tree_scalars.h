// Numbers: the scalars of a tree that are not arrays (counters, rates, keys, strings), with their paths.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "nn/tree/tree.h"

namespace tessera::nn {

enum class NumberKind : uint8_t { boolean, integer, unsigned_integer, floating, text, key };

// One scalar of a tree: a number of `size` bytes, a std::string or a Key. The pointer points into the tree.
struct Number {
  std::string path;  // optimizer.state.1.count
  NumberKind kind = NumberKind::integer;
  int size = 8;
  void* value = nullptr;

  // 7, 0.1, true, "gelu", a key as [0, 42]; "nan", "inf" or "-inf" if not finite. set_json restores the exact value.
  std::string to_json() const;
  // Error (bad_file) "[restore] path: given, expected": the text is of another kind, or the number does not fit.
  void set_json(std::string_view text) const;
};

using Numbers = std::vector<Number>;

namespace detail {

template <class T>
void add_number(Numbers& out, const std::string& path, T& x) {
  constexpr int size = sizeof(T);
  if constexpr (std::is_same_v<T, bool>)
    out.push_back({path, NumberKind::boolean, size, &x});
  else if constexpr (std::is_floating_point_v<T>)
    out.push_back({path, NumberKind::floating, size, &x});
  else if constexpr (std::is_same_v<T, std::string>)
    out.push_back({path, NumberKind::text, size, &x});
  else if constexpr (std::is_same_v<T, Key>)
    out.push_back({path, NumberKind::key, size, &x});
  else if constexpr (std::is_enum_v<T>)
    out.push_back({path, NumberKind::integer, size, &x});
  else if constexpr (std::is_integral_v<T>)
    out.push_back({path, std::is_signed_v<T> ? NumberKind::integer : NumberKind::unsigned_integer, size, &x});
}

class NumberCollector {
 public:
  static constexpr bool sees_values = true;
  NumberCollector(Numbers& out, const std::string& path) : out_(out), place_(path) {}

  bool keeps_path() const { return true; }
  size_t push(std::string_view name) { return place_.push(name); }
  void pop(size_t before) { place_.pop(before); }
  template <class T>
  void leaf(T&) {}
  template <class T>
  void node(T&) {}
  template <class T>
  void value(T& field) {
    if constexpr (is_sequence<T>) {
      size_t i = 0;
      for (auto& item : field) walk_under(i++, item, *this);
    } else {
      add_number(out_, place_.path(), field);
    }
  }

 private:
  Numbers& out_;
  Place place_;
};

}  // namespace detail

// All scalars of a tree, in the order of its fields. Axes, rules and specs are not among them.
template <class Tree>
Numbers numbers(Tree& tree, const std::string& path = "") {
  Numbers out;
  detail::NumberCollector collector(out, path);
  detail::walk_all(tree, collector);
  return out;
}

// The complete state of one or more trees: arrays and numbers. A list of arrays alone converts to it.
struct NamedState {
  Leaves arrays;
  Numbers numbers;

  NamedState() = default;
  NamedState(Leaves arrays, Numbers numbers = {}) : arrays(std::move(arrays)), numbers(std::move(numbers)) {}
};

// As named(...), with the numbers: named_state("model", model, "optimizer", optimizer). Checkpoints take this, since an
// optimizer's counters are numbers, not arrays.
template <class Tree, class... Rest>
NamedState named_state(const std::string& name, Tree& tree, Rest&&... rest) {
  NamedState all(leaves(tree, name), numbers(tree, name));
  if constexpr (sizeof...(Rest) > 0) {
    NamedState others = named_state(std::forward<Rest>(rest)...);
    for (Leaf& leaf : others.arrays) all.arrays.push_back(std::move(leaf));
    for (Number& number : others.numbers) all.numbers.push_back(std::move(number));
  }
  return all;
}

}  // namespace tessera::nn
