// A flat list of all parts of a tree: its structs and containers, its static fields, its arrays.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nn/tree/tree.h"
#include "nn/tree/tree_at.h"

namespace tessera::nn::detail {

// One part of a tree. The pointer points into the tree.
struct Part {
  std::string path;
  std::string text;        // a module's type, a container's size, a static field's value, a leaf's kind and names
  Array* value = nullptr;  // the array of a leaf; else null
  bool is_module = false;
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

class PartCollector {
 public:
  static constexpr bool sees_values = true;
  explicit PartCollector(Parts& parts) : parts_(parts), place_("") {}

  bool keeps_path() const { return true; }
  size_t push(std::string_view name) { return place_.push(name); }
  void pop(size_t before) { place_.pop(before); }

  void leaf(Array& x) { add_leaf("array", x); }
  void leaf(NamedArray& x) { add_leaf("array", x); }
  void leaf(Param& x) { add_leaf("param", x); }
  void leaf(Buffer& x) { add_leaf("buffer", x); }
  template <class T>
  void value(T& field) {
    add(text_of_value(field));
  }
  template <class T>
  void node(T& node) {
    if constexpr (is_sequence<T> || is_map<T>)
      add(std::string("a container of ").append(std::to_string(node.size())));
    else if constexpr (is_optional<T>)
      add(node ? "optional" : "nothing");
    else if constexpr (is_variant<T>)
      add(std::string("alternative ").append(std::to_string(node.index())));
    else if constexpr (is_container<T>)
      add("a tuple");
    else
      add(std::string(type_name<T>()), nullptr, true);
  }

 private:
  void add(std::string text, Array* value = nullptr, bool is_module = false) {
    parts_.push_back({place_.path(), std::move(text), value, is_module});
  }
  void add_leaf(const char* kind, Array& x) { add(kind, &x); }
  template <class Leaf>
  void add_leaf(const char* kind, Leaf& x) {
    add(std::string(kind).append(" ").append(x.axes.to_string()), &x.value);
  }

  Parts& parts_;
  Place place_;
};

template <class Tree>
Parts parts_of(const Tree& tree) {
  Parts parts;
  PartCollector collector(parts);
  walk_all(tree, collector);
  return parts;
}

}  // namespace tessera::nn::detail
