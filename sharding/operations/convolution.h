// Convolutions and pooling.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sharding/operations/operand.h"

namespace tessera {

// How much is added in front of and behind each spatial dim: as jax.lax, "SAME" (as many places out as in, over the
// stride; the odd one behind), "SAME_LOWER" (in front), "VALID" (nothing), or pairs: {{1, 1}, {0, 2}}.
class Padding {
 public:
  Padding(const char* name) : name_(name) {}
  Padding(std::initializer_list<std::pair<int64_t, int64_t>> pairs) : pairs_(pairs) {}
  Padding(std::vector<std::pair<int64_t, int64_t>> pairs) : pairs_(std::move(pairs)) {}

  const std::string& name() const { return name_; }  // empty: pairs
  const std::vector<std::pair<int64_t, int64_t>>& pairs() const { return pairs_; }

 private:
  std::string name_;
  std::vector<std::pair<int64_t, int64_t>> pairs_;
};

// Which dim is which, as jax.lax: N is the batch, C the features, I and O the kernel's features in and out, any other
// letters the spatial dims: {"NHWC", "HWIO", "NHWC"}. Left out: NCHW, OIHW, NCHW with as many spatial dims as there
// are.
struct ConvDimensionNumbers {
  std::string lhs, rhs, out;
};

struct ConvOptions {
  std::vector<int64_t> lhs_dilation = {};  // zeros put between the elements of lhs, as in a transposed convolution
  std::vector<int64_t> rhs_dilation = {};  // between those of the kernel
  ConvDimensionNumbers dimension_numbers = {};
  int64_t feature_group_count = 1;  // each group of features in is seen by its own group of features out
  std::optional<PartitionSpec> out_sharding = std::nullopt;
};

// jax.lax.conv_general_dilated, with one to three spatial dims. The batch may be sharded, the features out (a sharded
// kernel: nothing moves), the groups, and the features in of both operands (the result is a pending sum). Features in
// of one operand are exchanged for another dim where that divides, else gathered. A sharded spatial dim stays sharded
// if its size in the result divides, too: each device gets the places that its windows reach over into its neighbours'
// blocks. Errors: shapes and letters that do not fit (shape_mismatch), different element types (dtype_mismatch).
Array conv_general_dilated(Operand lhs, const Array& rhs, const std::vector<int64_t>& window_strides,
                           const Padding& padding, const ConvOptions& options = {});

// flax.linen.max_pool and avg_pool: of x (..., spatial dims, features), the largest and the mean of each window.
// Strides are 1 unless given. Padding counts as -infinity, and as 0: one of the window's elements unless
// count_include_pad is false. Sharded dims as in conv_general_dilated.
Array max_pool(Operand x, const std::vector<int64_t>& window, const std::vector<int64_t>& strides = {},
               const Padding& padding = "VALID");
Array avg_pool(Operand x, const std::vector<int64_t>& window, const std::vector<int64_t>& strides = {},
               const Padding& padding = "VALID", bool count_include_pad = true);

}  // namespace tessera
