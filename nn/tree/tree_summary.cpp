// Sums arrays over the modules of a tree, and prints the sums in aligned columns.
#include "nn/tree/tree_summary.h"

#include <algorithm>
#include <ostream>

#include "nn/tree/filter.h"
#include "sharding/base/table.h"

namespace tessera::nn::detail {

namespace {

using tessera::detail::Table;

struct Sums {
  int64_t arrays = 0, elements = 0, bytes = 0;
  void add(const Array& x) {
    arrays += 1;
    elements += x.size();
    bytes += x.size() * item_size(x.dtype());
  }
};

int depth_of(const std::string& path) {
  return path.empty() ? 0 : 1 + static_cast<int>(std::count(path.begin(), path.end(), '.'));
}

// Parts are in the order of the tree, so the parts of a module follow it directly.
Sums sums_below(const Parts& parts, size_t module) {
  Sums sums;
  for (size_t i = module; i < parts.size() && is_below(parts[i].path, parts[module].path); ++i)
    if (parts[i].value && !parts[i].value->is_absent()) sums.add(*parts[i].value);
  return sums;
}

}  // namespace

std::string summary_of(const Parts& parts, const TreeSummaryOptions& options) {
  Table table({"path", "module", "arrays", "elements", "bytes"}, "<<,,,");
  const auto add = [&](const std::string& title, size_t module) {
    const Sums sums = sums_below(parts, module);
    table.add(
        {title, parts[module].type->is_module ? parts[module].text() : "", sums.arrays, sums.elements, sums.bytes});
  };
  for (size_t i = 0; i < parts.size(); ++i)
    if (parts[i].type->is_module && !parts[i].path.empty() && depth_of(parts[i].path) <= options.depth)
      add(parts[i].path, i);
  if (!parts.empty()) add("total", 0);
  return table.to_text();
}

std::ostream& print(std::ostream& out, const std::string& text) { return out << text; }

int64_t num_parameters_of(const Leaves& leaves) {
  Sums sums;
  for (const Leaf& leaf : leaves)
    if (is_array(leaf) && (is_param(leaf) || is_trainable(leaf))) sums.add(*leaf.value);
  return sums.elements;
}

int64_t num_bytes_of(const Leaves& leaves) {
  Sums sums;
  for (const Leaf& leaf : leaves)
    if (is_array(leaf)) sums.add(*leaf.value);
  return sums.bytes;
}

}  // namespace tessera::nn::detail
