// tree_equal and tree_difference: comparison of two trees, and their first difference.
#pragma once

#include <string>

#include "nn/tree/tree_parts.h"

namespace tessera::nn {

// Tolerances. Two numbers are equal if |x - y| <= atol + rtol |y|, as in jax.numpy.allclose.
struct TreeEqualOptions {
  double rtol = 0;
  double atol = 0;
};

namespace detail {
std::string first_difference(const Parts& a, const Parts& b, const TreeEqualOptions& options);
}

// Describes the first difference of two trees, beginning with its path; returns "" if there is none. Compares structure
// (lengths, alternatives, absent arrays), static fields, names of dimensions, shapes, element types and values.
// Shardings may differ. NaN differs from itself. Error (device_mismatch): the arrays are on meshes over different
// devices.
template <class Tree>
std::string tree_difference(const Tree& a, const Tree& b, const TreeEqualOptions& options = {}) {
  return detail::first_difference(detail::parts_of(a), detail::parts_of(b), options);
}

// Returns true if tree_difference finds no difference (eqx.tree_equal).
template <class Tree>
bool tree_equal(const Tree& a, const Tree& b, const TreeEqualOptions& options = {}) {
  return tree_difference(a, b, options).empty();
}

}  // namespace tessera::nn
