// tree_summary: a tree at a glance, module by module, with parameters and bytes.
#pragma once

#include <string>

#include "nn/tree/tree_parts.h"

namespace tessera::nn {

struct TreeSummaryOptions {
  int depth = 2;  // how many names a path may have; what is deeper is counted in the module above it
};

namespace detail {
std::string summary_of(const Parts& parts, const TreeSummaryOptions& options);
}

// One row per module: its path, its type, how many arrays are in it and below it, their elements and their bytes (of
// the whole arrays, wherever they lie: see placement_table for those of each device). The last row is the sum.
//   std::cout << nn::tree_summary(model, {.depth = 3});
// Works on recipes and abstract arrays; nothing is allocated.
template <class Tree>
std::string tree_summary(const Tree& tree, const TreeSummaryOptions& options = {}) {
  return detail::summary_of(detail::parts_of(tree), options);
}

}  // namespace tessera::nn
