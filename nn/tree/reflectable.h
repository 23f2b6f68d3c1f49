// Compile-time checks that a struct can be walked as a tree, and their messages.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "nn/tree/param.h"
#include "sharding/array/array.h"
#include "sharding/placement/axis.h"
#include "sharding/placement/mesh_rules.h"
#include "sharding/random/key.h"

// A module is an aggregate. Any other type in a tree fails to compile, with one sentence that begins with `tessera:`.
// The compiler's notes around it name the struct and the type and number of the field. The checks do not use Boost.PFR,
// because a message of PFR would then come before this one.

namespace tessera::nn::detail {

// ---- kinds of types -------------------------------------------------------------------------------------------------

template <class T, template <class...> class Template>
inline constexpr bool is_specialization = false;
template <template <class...> class Template, class... Args>
inline constexpr bool is_specialization<Template<Args...>, Template> = true;

template <class T>
inline constexpr bool is_std_array = false;
template <class T, size_t N>
inline constexpr bool is_std_array<std::array<T, N>> = true;

template <class T>
inline constexpr bool is_span = false;
template <class T, size_t N>
inline constexpr bool is_span<std::span<T, N>> = true;

template <class T>
inline constexpr bool is_leaf =
    std::same_as<T, Array> || std::same_as<T, Param> || std::same_as<T, Buffer> || std::same_as<T, NamedArray>;

template <class T>
inline constexpr bool is_static = std::is_arithmetic_v<T> || std::is_enum_v<T> || std::same_as<T, std::string> ||
                                  std::same_as<T, Key> || std::same_as<T, Axis> || std::same_as<T, Axes> ||
                                  std::same_as<T, AxisName> || std::same_as<T, Rules> || std::same_as<T, PartitionSpec>;

template <class T>
inline constexpr bool is_sequence = is_specialization<T, std::vector> || is_std_array<T>;
template <class T>
inline constexpr bool is_optional = is_specialization<T, std::optional>;
template <class T>
inline constexpr bool is_map = is_specialization<T, std::map>;
template <class T>
inline constexpr bool is_variant = is_specialization<T, std::variant>;
template <class T>
inline constexpr bool is_container = is_sequence<T> || is_optional<T> || is_map<T> || is_variant<T> ||
                                     is_specialization<T, std::pair> || is_specialization<T, std::tuple>;

struct AnyVisitor {
  template <class Field>
  void operator()(std::string_view, Field&) const;
};
template <class T>
concept has_hook = requires(T& node) {
  node.visit_fields(AnyVisitor{});
};

template <class T>
inline constexpr bool is_pointer_like =
    std::is_pointer_v<T> || std::is_member_pointer_v<T> || std::is_null_pointer_v<T> || is_span<T> ||
    std::same_as<T, std::string_view> || is_specialization<T, std::unique_ptr> ||
    is_specialization<T, std::shared_ptr> || is_specialization<T, std::weak_ptr> ||
    is_specialization<T, std::reference_wrapper>;

// Type name without namespaces: Linear, vector<tessera::Array>.
template <class T>
constexpr std::string_view type_name() {
  constexpr std::string_view all = __PRETTY_FUNCTION__;  // g++: ... [with T = Linear; ...]; clang: ... [T = Linear]
  constexpr size_t begin = all.find("T = ") + 4;
  std::string_view name = all.substr(begin, std::min(all.find(';', begin), all.rfind(']')) - begin);
  const size_t arguments = std::min(name.find('<'), name.size());
  const size_t scope = name.substr(0, arguments).rfind("::");
  return scope == std::string_view::npos ? name : name.substr(scope + 2);
}

template <class T>
constexpr bool is_closure() {
  constexpr std::string_view name = __PRETTY_FUNCTION__;  // g++ writes <lambda(, clang (lambda at
  return name.find("<lambda(") != std::string_view::npos || name.find("(lambda at") != std::string_view::npos;
}

template <class T>
constexpr bool is_function_like() {
  if constexpr (std::is_pointer_v<T>)
    return std::is_function_v<std::remove_pointer_t<T>>;
  else
    return is_specialization<T, std::function> || (!std::is_aggregate_v<T> && is_closure<T>());
}

// ---- the fields of an aggregate -------------------------------------------------------------------------------------

inline constexpr size_t max_fields = 100;

// Placeholders that convert to any field of Struct, to any assignable field, and to any base class. The conversions are
// volatile, so that overload resolution prefers a field's own constructor that accepts anything. They are never called,
// but clang needs definitions for local types.
template <class Struct>
struct AnyField {
  template <class Field>
  requires(!std::same_as<Field, Struct>) operator Field() const volatile { std::terminate(); }
};
template <class Struct>
struct AnyAssignableField {
  template <class Field>
  requires(!std::same_as<Field, Struct> && std::is_copy_assignable_v<Field>) operator Field() const volatile {
    std::terminate();
  }
};
template <class Struct>
struct AnyBase {
  template <class Base>
  requires(!std::same_as<Base, Struct> && std::is_base_of_v<Base, Struct>) operator Base() const volatile {
    std::terminate();
  }
};
struct NoField {};

template <size_t, class T>
using repeated = T;

// True if Struct{Value, Value, ...} compiles with n values; parentheses_take is the same for Struct(Value, Value, ...).
// A C array in Struct takes one value per element in braces, and none in parentheses.
template <class Struct, class Value, class Numbers>
inline constexpr bool braces_take = false;
template <class Struct, class Value, size_t... I>
requires requires { Struct{repeated<I, Value>()...}; }
inline constexpr bool braces_take<Struct, Value, std::index_sequence<I...>> = true;

template <class Struct, class Value, class Numbers>
inline constexpr bool parentheses_take = false;
template <class Struct, class Value, size_t... I>
requires requires { Struct(repeated<I, Value>()...); }
inline constexpr bool parentheses_take<Struct, Value, std::index_sequence<I...>> = true;

inline constexpr size_t uncountable = static_cast<size_t>(-1);

// Number of fields of an aggregate, at most max_fields + 1; uncountable if one of them is a reference.
template <class T, size_t n = 0>
constexpr size_t count_fields() {
  if constexpr (n > max_fields) {
    return braces_take<T, AnyField<T>, std::make_index_sequence<n>> ? n : uncountable;
  } else if constexpr (braces_take<T, AnyField<T>, std::make_index_sequence<n>> &&
                       !braces_take<T, AnyField<T>, std::make_index_sequence<n + 1>>) {
    return n;
  } else {
    return count_fields<T, n + 1>();
  }
}
template <class T>
inline constexpr size_t field_count = count_fields<T>();

template <class T>
inline constexpr bool has_base =
    braces_take<T, AnyBase<T>, std::index_sequence<0>> && !braces_take<T, NoField, std::index_sequence<0>>;

// ---- rejected types -------------------------------------------------------------------------------------------------

enum class Mistake {
  none,
  pointer,
  function,
  unordered,
  is_union,
  virtual_function,
  no_aggregate,
  base,
  reference,
  c_array,
  too_many,
  constant
};

template <class T>
constexpr Mistake mistake_of_fields() {
  constexpr size_t n = field_count<T>;
  if constexpr (n == uncountable)
    return Mistake::reference;
  else if constexpr (!parentheses_take<T, AnyField<T>, std::make_index_sequence<n>>)
    return Mistake::c_array;
  else if constexpr (n > max_fields)
    return Mistake::too_many;
  else if constexpr (std::is_copy_assignable_v<T>)
    return Mistake::none;
  else if constexpr (braces_take<T, AnyAssignableField<T>, std::make_index_sequence<n>>)
    return Mistake::constant;
  else
    return Mistake::none;  // the mistake is inside a field, and found when that field is walked
}

// The first mistake of a type that is not a leaf, a static value or a container, and has no hook.
template <class T>
constexpr Mistake mistake_of() {
  if constexpr (is_function_like<T>())
    return Mistake::function;
  else if constexpr (is_pointer_like<T>)
    return Mistake::pointer;
  else if constexpr (is_specialization<T, std::unordered_map>)
    return Mistake::unordered;
  else if constexpr (std::is_union_v<T>)
    return Mistake::is_union;
  else if constexpr (std::is_polymorphic_v<T>)
    return Mistake::virtual_function;
  else if constexpr (!std::is_aggregate_v<T>)
    return Mistake::no_aggregate;
  else if constexpr (has_base<T>)
    return Mistake::base;
  else
    return mistake_of_fields<T>();
}

template <class T>
inline constexpr bool is_counted = mistake_of<T>() == Mistake::none;

// True if T is an aggregate that can be walked; otherwise a compile-time error.
template <class T>
constexpr bool check_reflectable() {
  constexpr Mistake mistake = mistake_of<T>();
  static_assert(mistake != Mistake::function,
                "tessera: a module cannot have functions, which can be neither compared nor saved. Use an enum, or a "
                "std::variant of structs with operator().");
  static_assert(mistake != Mistake::pointer,
                "tessera: a module cannot have pointers or views. Use the value itself, std::optional, std::vector or "
                "std::variant.");
  static_assert(mistake != Mistake::unordered,
                "tessera: a module cannot have an unordered_map, because its order is not fixed. Use std::map.");
  static_assert(mistake != Mistake::is_union, "tessera: a module cannot be a union. Use std::variant.");
  static_assert(mistake != Mistake::virtual_function,
                "tessera: a module cannot have virtual functions. Use a std::variant of structs.");
  static_assert(mistake != Mistake::no_aggregate,
                "tessera: a module must be an aggregate, with public fields and without constructors. Make it in a "
                "static init(), or give the class the hook visit_fields.");
  static_assert(mistake != Mistake::base, "tessera: a module cannot have a base class. Make the base a field.");
  static_assert(mistake != Mistake::reference,
                "tessera: a module cannot have references as fields. Store the value itself.");
  static_assert(mistake != Mistake::c_array, "tessera: a module cannot have C arrays. Use std::array or std::vector.");
  static_assert(mistake != Mistake::too_many,
                "tessera: a module can have at most 100 fields. Group some of them in structs.");
  static_assert(mistake != Mistake::constant,
                "tessera: a module cannot have const fields or references, because it is assigned to. Remove the "
                "const, and store values.");
  return mistake == Mistake::none;
}

}  // namespace tessera::nn::detail
