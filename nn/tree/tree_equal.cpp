// Converts a tree's parts to text, and compares two lists of parts.
#include "nn/tree/tree_equal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::nn::detail {

std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(int64_t value) { return fmt::format("{}", value); }
std::string text_of(uint64_t value) { return fmt::format("{}", value); }
std::string text_of(double value) { return fmt::format("{}", value); }
std::string text_of(const std::string& value) { return '"' + value + '"'; }
std::string text_of(const Key& value) { return fmt::format("Key({}, {})", value.data[0], value.data[1]); }
std::string text_of(const Axis& value) { return fmt::format("Axis{{\"{}\", {}}}", value.name, value.size); }
std::string text_of(const Axes& value) { return value.to_string(); }
std::string text_of(const AxisName& value) { return value.to_string(); }
std::string text_of(const Rules& value) { return value.to_string(); }
std::string text_of(const PartitionSpec& value) { return value.to_string(); }
std::string text_of(const Leaf& leaf) {
  if (!leaf.axes || leaf.kind == Kind::array) return "array";
  const char* const kind = leaf.kind == Kind::param ? "param" : leaf.kind == Kind::buffer ? "buffer" : "array";
  return fmt::format("{} {}", kind, leaf.axes->to_string());
}

namespace {

std::string name_of(const std::string& path) { return path.empty() ? "the tree" : path; }

std::string type_of(const Array& x) {
  return x.is_absent() ? "nothing" : fmt::format("{}[{}]", tessera::name_of(x.dtype()), fmt::join(x.shape(), ","));
}

// Compares over the devices of x if both are placed and on different meshes.
bool have_equal_values(const Array& x, Array y, const TreeEqualOptions& options) {
  if (x.is_same(y)) return true;
  if (x.is_committed() && y.is_committed() && !(x.sharding().mesh() == y.sharding().mesh()))
    y = device_put(y, x.sharding());
  if ((options.rtol == 0 && options.atol == 0) || !is_floating(x.dtype())) return all(equal(x, y)).item<bool>();
  const Array close = logical_and(isfinite(y), abs(x - y) <= options.atol + options.rtol * abs(y));
  return all(logical_or(equal(x, y), close)).item<bool>();
}

std::string difference(const Part& a, const Part& b, const TreeEqualOptions& options) {
  const auto differ = [&](const std::string& x, const std::string& y) {
    return fmt::format("{}: {} and {}", name_of(a.path), x, y);
  };
  if (const std::string x = a.text(), y = b.text(); x != y) return differ(x, y);
  if (!a.value) return "";
  if (type_of(*a.value) != type_of(*b.value)) return differ(type_of(*a.value), type_of(*b.value));
  if (a.value->is_absent() || have_equal_values(*a.value, *b.value, options)) return "";
  return fmt::format("{}: two {} with different values", name_of(a.path), type_of(*a.value));
}

}  // namespace

std::string first_difference(const Parts& a, const Parts& b, const TreeEqualOptions& options) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i].path != b[i].path) return fmt::format("{}: the other tree has {} in its place", a[i].path, b[i].path);
    if (std::string text = difference(a[i], b[i], options); !text.empty()) return text;
  }
  if (a.size() == b.size()) return "";
  return fmt::format("{}: the other tree does not have it", (a.size() > b.size() ? a[b.size()] : b[a.size()]).path);
}

}  // namespace tessera::nn::detail
