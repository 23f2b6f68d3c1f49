// tree_summary: a tree at a glance, module by module, with parameters and bytes; num_parameters and num_bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
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
std::ostream& print(std::ostream& out, const std::string& text);
int64_t num_parameters_of(const Leaves& leaves);
int64_t num_bytes_of(const Leaves& leaves);
}  // namespace detail

// A table with one row per module: its path, its type, and the number, elements and bytes of the arrays in it and below
// it. Bytes are those of the global arrays; placement_table has the bytes per device. The last row is the sum.
//   std::cout << nn::tree_summary(model, {.depth = 3});
// Works on recipes and abstract arrays; nothing is allocated.
template <class Tree>
std::string tree_summary(const Tree& tree, const TreeSummaryOptions& options = {}) {
  return detail::summary_of(detail::parts_of(tree), options);
}

// Returns the number of elements of all parameters of a tree: of its Params, and of other floating arrays outside
// Buffers. Arrays are global, as in tree_summary. Absent arrays count 0, and an array in two fields counts twice.
// Works on recipes and abstract arrays; nothing is allocated.
//   std::cout << nn::num_parameters(model) << " parameters\n";
template <class Tree>
int64_t num_parameters(const Tree& tree) {
  return detail::num_parameters_of(leaves(tree));
}

// Returns the bytes of all arrays of a tree, Buffers included. Arrays are global: placement_table(tree) has the bytes
// per device.
template <class Tree>
int64_t num_bytes(const Tree& tree) {
  return detail::num_bytes_of(leaves(tree));
}

}  // namespace tessera::nn
