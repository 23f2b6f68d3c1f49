// Convolutions and pooling.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sharding/operations/operand.h"

namespace tessera {

// The number of elements added before and after each spatial dimension, as in jax.lax:
// - "SAME": the result has ceil(size / stride) elements; an odd one goes after.
// - "SAME_LOWER": the same, but an odd one goes before.
// - "VALID": none.
// - pairs: {{1, 1}, {0, 2}}.
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

// Names the dimensions, as in jax.lax: N is the batch, C the features, I and O the kernel's input and output features,
// and any other letters are the spatial dimensions: {"NHWC", "HWIO", "NHWC"}. The default is NCHW, OIHW, NCHW, with as
// many spatial dimensions as the operands have.
struct ConvDimensionNumbers {
  std::string lhs, rhs, out;
};

struct ConvolutionOptions {
  std::vector<int64_t> lhs_dilation = {};  // zeros inserted between the elements of lhs, as in a transposed convolution
  std::vector<int64_t> rhs_dilation = {};  // zeros inserted between the elements of the kernel
  ConvDimensionNumbers dimension_numbers = {};
  int64_t feature_group_count = 1;  // each group of output features reads its own group of input features
  std::optional<PartitionSpec> out_sharding = std::nullopt;
};

// Computes jax.lax.conv_general_dilated, with one to three spatial dimensions.
// - Sharded batch, output features (of the kernel) or groups: nothing is communicated.
// - Input features sharded in both operands: nothing is communicated, and the result is a partial sum.
// - Input features sharded in one operand only: the mesh axes are exchanged for another dimension if they divide it,
//   else the features are gathered.
// - A sharded spatial dimension stays sharded if the mesh axes divide its size in the result too: each device receives
//   the elements of adjacent blocks that its windows need (halos).
//
// Errors
//   shape_mismatch: shapes and letters that do not fit
//   dtype_mismatch: different element types
Array conv_general_dilated(Operand lhs, const Array& rhs, const std::vector<int64_t>& window_strides,
                           const Padding& padding, const ConvolutionOptions& options = {});

// Return the maximum or the mean of each window of x (..., spatial dimensions, features), as flax.linen.max_pool and
// avg_pool. Strides are 1 unless given. Padding is -infinity in max_pool. In avg_pool it is 0, and counts as elements
// of the window unless count_include_pad is false. Sharded dimensions are treated as in conv_general_dilated.
//
// Errors
//   shape_mismatch: a window that does not fit
//   dtype_mismatch: a type that is not floating
Array max_pool(Operand x, const std::vector<int64_t>& window, const std::vector<int64_t>& strides = {},
               const Padding& padding = "VALID");
Array avg_pool(Operand x, const std::vector<int64_t>& window, const std::vector<int64_t>& strides = {},
               const Padding& padding = "VALID", bool count_include_pad = true);

}  // namespace tessera
