// A flat list of all parts of a tree: its structs, containers, static values and arrays.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "nn/tree/tree.h"

namespace tessera::nn {

// Kind of a scalar in a tree's static fields. `none`: the static value is a sequence or otherwise not a scalar.
enum class ScalarKind : uint8_t { boolean, integer, unsigned_integer, floating, text, key, none };

namespace detail {

// Functions and properties of parts of one type, with the type erased.
struct PartType {
  std::string (*text)(const void* part);  // a module's type, a container's size, a value, a leaf's kind and names
  bool is_module;
  ScalarKind kind;          // none: not a scalar
  int size;                 // bytes
  const PartType* element;  // element type of a sequence of static values
  void (*for_each)(void* sequence, const std::function<void(void*)>& visit);  // null for a vector<bool>
  bool (*has_enumerator)(int64_t value);                                      // null unless an enum
};

// One part of a tree. The pointers point into the tree.
struct Part {
  std::string path;
  void* node;
  const PartType* type;
  Array* value;  // array of a leaf; otherwise null
  std::string text() const { return type->text(node); }
};
using Parts = std::vector<Part>;

std::string text_of(bool value);
std::string text_of(int64_t value);
std::string text_of(uint64_t value);
std::string text_of(double value);
std::string text_of(const std::string& value);
std::string text_of(const Key& value);
std::string text_of(const Axis& value);
std::string text_of(const Axes& value);
std::string text_of(const AxisName& value);
std::string text_of(const Rules& value);
std::string text_of(const PartitionSpec& value);
std::string text_of(const Leaf& leaf);

template <class T>
std::string text_of_value(const T& value) {
  if constexpr (is_sequence<T>) {
    std::string text = "[";
    for (const auto& item : value) {
      if (text.size() > 1) text += ", ";
      text += text_of_value(static_cast<const typename T::value_type&>(item));
    }
    return text + "]";
  } else if constexpr (std::is_enum_v<T>) {
    return text_of(static_cast<int64_t>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    return text_of(static_cast<double>(value));
  } else if constexpr (std::is_same_v<T, bool> || !std::is_arithmetic_v<T>) {
    return text_of(value);
  } else if constexpr (std::is_signed_v<T>) {
    return text_of(static_cast<int64_t>(value));
  } else {
    return text_of(static_cast<uint64_t>(value));
  }
}

template <class T>
std::string text_of_part(const T& part) {
  if constexpr (is_leaf<T>)
    return text_of(leaf_of(const_cast<T&>(part)));
  else if constexpr (is_value<T>())
    return text_of_value(part);
  else if constexpr (is_sequence<T> || is_map<T>)
    return std::string("a container of ").append(std::to_string(part.size()));
  else if constexpr (is_optional<T>)
    return part ? "optional" : "nothing";
  else if constexpr (is_variant<T>)
    return std::string("alternative ").append(std::to_string(part.index()));
  else if constexpr (is_container<T>)
    return "a tuple";
  else
    return std::string(type_name<T>());
}

template <class T>
constexpr ScalarKind scalar_kind() {
  if constexpr (std::same_as<T, bool>)
    return ScalarKind::boolean;
  else if constexpr (std::is_floating_point_v<T>)
    return ScalarKind::floating;
  else if constexpr (std::same_as<T, std::string>)
    return ScalarKind::text;
  else if constexpr (std::same_as<T, Key>)
    return ScalarKind::key;
  else if constexpr (std::is_enum_v<T> || std::is_arithmetic_v<T>)
    return std::is_unsigned_v<T> ? ScalarKind::unsigned_integer : ScalarKind::integer;
  else
    return ScalarKind::none;
}

// Enumerators of a tree's enums are from 0 to max_enumerator.
constexpr int max_enumerator = 63;

// Returns whether `value` is an enumerator. Compilers print the name of an enumerator, and "(Kind)9" for other values.
template <auto value>
consteval bool is_enumerator() {
  constexpr std::string_view text = __PRETTY_FUNCTION__, name = text.substr(text.rfind("value = ") + 8);
  return name[0] != '(' || name.starts_with("(anonymous namespace)::");
}
// A bit_cast, because a static_cast to a value that an enum without a fixed type cannot have is an error.
template <class T, int value>
consteval bool is_enumerator_of() {
  constexpr auto number = static_cast<std::underlying_type_t<T>>(value);
  return number == value && is_enumerator<std::bit_cast<T>(number)>();
}
// Returns true for every value if no name is known: all enumerators are above the maximum, or clang compiles an enum
// that a class template declares.
template <class T>
bool has_enumerator(int64_t value) {
  constexpr auto known = []<int... values>(std::integer_sequence<int, values...>) {
    return std::array{is_enumerator_of<T, values>()...};
  }(std::make_integer_sequence<int, max_enumerator + 1>());
  constexpr bool is_known = std::find(known.begin(), known.end(), true) != known.end();
  return !is_known || (value >= 0 && value <= max_enumerator && known[static_cast<size_t>(value)]);
}

template <class T>
struct TypeOf {
  static const PartType value;
};

template <class T>
constexpr PartType make_part_type() {
  PartType type{.text = [](const void* part) { return text_of_part(*static_cast<const T*>(part)); },
                .is_module = is_module<T>,
                .kind = scalar_kind<T>(),
                .size = sizeof(T),
                .element = nullptr,
                .for_each = nullptr,
                .has_enumerator = nullptr};
  if constexpr (std::is_enum_v<T>) type.has_enumerator = has_enumerator<T>;
  if constexpr (is_value<T>() && is_sequence<T>) {
    type.element = &TypeOf<typename T::value_type>::value;
    if constexpr (!std::same_as<T, std::vector<bool>>)
      type.for_each = [](void* sequence, const std::function<void(void*)>& visit) {
        for (auto& item : *static_cast<T*>(sequence)) visit(&item);
      };
  }
  return type;
}
template <class T>
constinit const PartType TypeOf<T>::value = make_part_type<T>();

struct PartCollector {
  Parts parts;
  template <class T>
  void operator()(T& part, const Place& place) {
    if constexpr (requires { part.settle(); }) part.settle();  // determines static values that are still pending
    Array* value = nullptr;
    if constexpr (is_leaf<T>) value = leaf_of(part).value;
    parts.push_back({place.path(), &part, &TypeOf<T>::value, value});
  }
};

template <class Tree>
Parts parts_of(Tree& tree, std::string_view root = "") {
  PartCollector collector;
  walk_all(tree, collector, root);
  return std::move(collector.parts);
}

}  // namespace detail

}  // namespace tessera::nn
