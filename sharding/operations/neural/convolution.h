// Convolutions and pooling.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sharding/operations/operand.h"

namespace tessera {

// How many elements are added before and after each spatial dim, as in jax.lax: "SAME" (so that the result has
// ceil(size / stride) elements; an odd one goes after), "SAME_LOWER" (an odd one goes before), "VALID" (none), or
// pairs: {{1, 1}, {0, 2}}.
class Padding {
 public:
  using Pairs = std::vector<std::pair<int64_t, int64_t>>;
  Padding(const char* name) : name_(name) {}
  Padding(std::initializer_list<std::pair<int64_t, int64_t>> pairs) : pairs_(pairs) {}
  Padding(Pairs pairs) : pairs_(std::move(pairs)) {}

  const std::string& name() const { return name_; }  // empty: pairs
  const Pairs& pairs() const { return pairs_; }

 private:
  std::string name_;
  Pairs pairs_;
};

// Which dim is which, as in jax.lax: N is the batch, C the features, I and O the kernel's input and output features,
// any other letters the spatial dims: {"NHWC", "HWIO", "NHWC"}. By default NCHW, OIHW, NCHW, with as many spatial dims
// as there are.
struct ConvDimensionNumbers {
  std::string lhs, rhs, out;
};

struct ConvolutionOptions {
  std::vector<int64_t> lhs_dilation = {};  // zeros put between the elements of lhs, as in a transposed convolution
  std::vector<int64_t> rhs_dilation = {};  // between those of the kernel
  ConvDimensionNumbers dimension_numbers = {};
  int64_t feature_group_count = 1;  // each group of output features reads its own group of input features
  std::optional<PartitionSpec> out_sharding = std::nullopt;
};

// jax.lax.conv_general_dilated, with one to three spatial dims. Nothing moves where the batch, the output features (of
// the kernel), the groups, or the input features of both operands are sharded; with the last the result is a pending
// sum. Input features sharded in one operand only are exchanged for another dim where that divides, else gathered. A
// sharded spatial dim stays sharded if its size in the result divides, too: each device receives the elements of
// adjacent blocks that its windows need (halos). Errors: shapes and letters that do not fit (shape_mismatch),
// different element types (dtype_mismatch).
Array conv_general_dilated(Operand lhs, const Array& rhs, const std::vector<int64_t>& window_strides,
                           const Padding& padding, const ConvolutionOptions& options = {});

// flax.linen.max_pool and avg_pool: the maximum or the mean of each window of x (..., spatial dims, features). Strides
// are 1 unless given. Padding is -infinity in max_pool; in avg_pool it is 0, and counts as elements of the window
// unless count_include_pad is false. Sharded dims are treated as in conv_general_dilated. Errors: a window that does
// not fit (shape_mismatch), a type that is not floating (dtype_mismatch).
Array max_pool(Operand x, const std::vector<int64_t>& window, const std::vector<int64_t>& strides = {},
               const Padding& padding = "VALID");
Array avg_pool(Operand x, const std::vector<int64_t>& window, const std::vector<int64_t>& strides = {},
               const Padding& padding = "VALID", bool count_include_pad = true);

}  // namespace tessera
