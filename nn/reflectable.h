// What a struct must be so that a tree can walk it: the compile-time checks and their sentences.
#pragma once

#include <array>
#include <concepts>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "nn/param.h"
#include "sharding/array.h"
#include "sharding/axis.h"
#include "sharding/key.h"
#include "sharding/layout.h"

namespace tessera::nn::detail {

template <class T, template <class...> class Template>
inline constexpr bool is_specialization = false;
template <template <class...> class Template, class... Args>
inline constexpr bool is_specialization<Template<Args...>, Template> = true;

template <class T>
inline constexpr bool is_std_array = false;
template <class T, size_t N>
inline constexpr bool is_std_array<std::array<T, N>> = true;

template <class T>
inline constexpr bool is_leaf = std::same_as<T, Array> || std::same_as<T, Param> || std::same_as<T, NamedArray>;

template <class T>
inline constexpr bool is_static = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::same_as<T, std::string> ||
                                  std::same_as<T, Key> || std::same_as<T, Axis> || std::same_as<T, Axes> ||
                                  std::same_as<T, AxisName> || std::same_as<T, Rules> || std::same_as<T, PartitionSpec>;

template <class T>
inline constexpr bool is_sequence = is_specialization<T, std::vector> || is_std_array<T>;
template <class T>
inline constexpr bool is_optional = is_specialization<T, std::optional>;
template <class T>
inline constexpr bool is_map = is_specialization<T, std::map> || is_specialization<T, std::unordered_map>;
template <class T>
inline constexpr bool is_variant = is_specialization<T, std::variant>;
template <class T>
inline constexpr bool is_container = is_sequence<T> || is_optional<T> || is_map<T> || is_variant<T> ||
                                     is_specialization<T, std::pair> || is_specialization<T, std::tuple>;

template <class T>
concept has_hook = requires(T& node) { node.visit_fields([](std::string_view, auto&) {}); };

template <class T>
constexpr bool check_reflectable() {
  static_assert(std::is_aggregate_v<T>, "tessera: a module is an aggregate: it has no constructor, no private field and no virtual function.");
  return std::is_aggregate_v<T>;
}

}  // namespace tessera::nn::detail
