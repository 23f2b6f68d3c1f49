// Sums over the modules of a tree, in aligned columns.
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

bool is_below(const std::string& path, const std::string& module) {
  return module.empty() || path == module || (path.starts_with(module) && path[module.size()] == '.');
}

std::vector<Table::Cell> row(const std::string& title, const Part& module, const Sums& sums, const ExtraColumns& more) {
  std::vector<Table::Cell> cells{title, module.type->is_module ? module.text() : "", sums.arrays, sums.elements,
                                 sums.bytes};
  if (more.cells)
    for (std::string& cell : more.cells(module.path)) cells.push_back(std::move(cell));
  return cells;
}

// Parts come in the order of the tree: what is below a module follows it.
Sums sums_below(const Parts& parts, size_t module) {
  Sums sums;
  for (size_t i = module; i < parts.size() && is_below(parts[i].path, parts[module].path); ++i)
    if (parts[i].value && !parts[i].value->is_absent()) sums.add(*parts[i].value);
  return sums;
}

}  // namespace

std::string summary_of(const Parts& parts, const TreeSummaryOptions& options, const ExtraColumns& more) {
  std::vector<std::string> titles{"path", "module", "arrays", "elements", "bytes"};
  titles.insert(titles.end(), more.titles.begin(), more.titles.end());
  Table table(std::move(titles), "<<,,,");
  for (size_t i = 0; i < parts.size(); ++i)
    if (parts[i].type->is_module && !parts[i].path.empty() && depth_of(parts[i].path) <= options.depth)
      table.add(row(parts[i].path, parts[i], sums_below(parts, i), more));
  if (!parts.empty()) table.add(row("total", parts[0], sums_below(parts, 0), more));
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
