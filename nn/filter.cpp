// What filters ask, patterns of paths, and arrays taken out of a tree and put back.
#include "nn/filter.h"

#include <algorithm>

#include "sharding/dtype.h"

namespace tessera::nn {

namespace detail {

bool is_present(const Leaf& leaf) { return !leaf.value->is_absent(); }
bool is_floating_leaf(const Leaf& leaf) { return is_present(leaf) && is_floating(leaf.value->dtype()); }
bool is_param_leaf(const Leaf& leaf) { return leaf.kind == Kind::param; }
bool is_buffer_leaf(const Leaf& leaf) { return leaf.kind == Kind::buffer; }
bool is_trainable_leaf(const Leaf& leaf) { return is_floating_leaf(leaf) && !is_buffer_leaf(leaf); }

void keep(const Leaves& tree, const Filter& filter) {
  for (const Leaf& leaf : tree)
    if (!filter(leaf)) *leaf.value = Array();
}

void keep_and_drop(const Leaves& kept, const Leaves& rest, const Filter& filter) {
  for (size_t i = 0; i < kept.size(); ++i) *(filter(kept[i]) ? rest : kept)[i].value = Array();
}

void fill_absent(const Leaves& result, const Leaves& other) {
  check_same_structure(result, other, "combine");
  for (size_t i = 0; i < result.size(); ++i)
    if (result[i].value->is_absent()) *result[i].value = *other[i].value;
}

}  // namespace detail

Filter by_kind(Kind kind) {
  return [kind](const std::string&, const Leaf& leaf) { return leaf.kind == kind; };
}

Filter by_axis(std::string name) {
  return [name = std::move(name)](const std::string&, const Leaf& leaf) {
    return leaf.axes && std::any_of(leaf.axes->begin(), leaf.axes->end(),
                                    [&](const AxisName& axis) { return axis.name() == name && !axis.is_mesh_axis(); });
  };
}

Filter by_path(std::string pattern) {
  return [pattern = std::move(pattern)](const std::string& path, const Leaf&) { return path_matches(path, pattern); };
}

namespace {

// Takes the first of the dotted names off; the last one leaves nothing.
std::string_view take_name(std::string_view& path) {
  const size_t end = std::min(path.find('.'), path.size());
  const std::string_view name = path.substr(0, end);
  path = path.substr(std::min(end + 1, path.size()));
  return name;
}

bool name_matches(std::string_view name, std::string_view pattern) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] != '*')
    return !name.empty() && name[0] == pattern[0] && name_matches(name.substr(1), pattern.substr(1));
  return name_matches(name, pattern.substr(1)) || (!name.empty() && name_matches(name.substr(1), pattern));
}

}  // namespace

bool path_matches(std::string_view path, std::string_view pattern) {
  if (pattern.empty()) return path.empty();
  std::string_view rest = pattern;
  const std::string_view first = take_name(rest);
  if (first == "**") {
    if (path_matches(path, rest)) return true;
    if (path.empty()) return false;
    take_name(path);
    return path_matches(path, pattern);
  }
  return !path.empty() && name_matches(take_name(path), first) && path_matches(path, rest);
}

}  // namespace tessera::nn
