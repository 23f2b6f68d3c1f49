// tree_summary: a tree at a glance, module by module, with parameters and bytes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/tree/tree_parts.h"

namespace tessera::nn {

struct TreeSummaryOptions {
  int depth = 2;  // most names in a row's path; deeper modules are counted in the row above them
};

namespace detail {
// Columns of text beside those of a tree summary.
struct ExtraColumns {
  std::vector<std::string> titles = {};
  std::function<std::vector<std::string>(const std::string& path)> cells = {};  // one for each title
};
std::string summary_of(const Parts& parts, const TreeSummaryOptions& options, const ExtraColumns& more = {});
}  // namespace detail

// A table with one row per module: its path, its type, and the number, elements and bytes of the arrays in it and below
// it. Bytes are those of the global arrays; placement_table has the bytes per device. The last row is the sum.
//   std::cout << nn::tree_summary(model, {.depth = 3});
// Works on recipes and abstract arrays; nothing is allocated.
template <class Tree>
std::string tree_summary(const Tree& tree, const TreeSummaryOptions& options = {}) {
  return detail::summary_of(detail::parts_of(tree), options);
}

}  // namespace tessera::nn
