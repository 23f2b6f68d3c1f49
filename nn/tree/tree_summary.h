// tree_summary, num_parameters and num_bytes: a tree module by module, with its numbers of parameters and bytes.
#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <utility>

#include "nn/tree/tree_parts.h"

namespace tessera::nn {

struct TreeSummaryOptions {
  int depth = 2;  // maximum number of names in a row's path; deeper modules are counted in the row above them
};

namespace detail {
std::string summary_of(const Parts& parts, const TreeSummaryOptions& options);
std::ostream& print(std::ostream& out, const std::string& text);
int64_t num_parameters_of(const Leaves& leaves);
int64_t num_bytes_of(const Leaves& leaves);
}  // namespace detail

// Prints to_text() of a table or report: std::cout << nn::placement_table(model).
template <class Report>
requires std::same_as<decltype(std::declval<const Report&>().to_text()), std::string> std::ostream& operator<<(
    std::ostream& out, const Report& report) {
  return detail::print(out, report.to_text());
}

// Returns a table with one row per module that has arrays: its path, its type, and the number, elements and bytes of
// all arrays in it. A dot in a map's key counts as a deeper module. The last row is the sum. Bytes are bytes of the
// global arrays; placement_table has the bytes per device.
//   std::cout << nn::tree_summary(model, {.depth = 3});
// Accepts lazy initializers and abstract arrays, and allocates nothing.
template <class Tree>
std::string tree_summary(const Tree& tree, const TreeSummaryOptions& options = {}) {
  return detail::summary_of(detail::parts_of(tree), options);
}

// Returns the number of elements of all parameters of a tree: its Params, and other floating arrays outside Buffers.
// Arrays are global, as in tree_summary. Absent arrays count 0, and an array in two fields counts twice. Accepts lazy
// initializers and abstract arrays, and allocates nothing.
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
