// Pools: the largest or the mean of each window over one to three spatial dims, features last.
#pragma once

#include <vector>

#include "nn/layers/conv.h"

namespace tessera::nn {

// (..., spatial dims..., features) -> the same with fewer places. flax.linen.max_pool's and avg_pool's defaults:
// strides of 1 and padding "VALID". Sharded spatial dims fetch what their windows reach over
// (sharding/operations/convolution.h). Errors (shape_mismatch): fewer dims than the window has and the features, a
// window that has no place.
struct MaxPool {
  std::vector<int64_t> window;
  std::vector<int64_t> strides = {};  // 1 each unless given
  ConvPadding padding = {"VALID"};

  Array operator()(Operand x) const;
};

struct AvgPool {
  std::vector<int64_t> window;
  std::vector<int64_t> strides = {};
  ConvPadding padding = {"VALID"};
  bool count_include_pad = true;  // padding counts as elements that are 0

  Array operator()(Operand x) const;
};

// (..., spatial dims..., features) -> (..., sizes..., features): place i of a dim of n takes the elements from
// floor(i n / size) to ceil((i + 1) n / size), as torch.nn.AdaptiveAvgPool does (Equinox's windows are the same where
// size divides n). Errors: no or more than three sizes, or one below 1 (bad_argument); too few dims, or
// one without places (shape_mismatch).
struct AdaptiveAvgPool {
  std::vector<int64_t> sizes;
  Array operator()(Operand x) const;
};

struct AdaptiveMaxPool {  // the largest element of the same windows
  std::vector<int64_t> sizes;
  Array operator()(Operand x) const;
};

}  // namespace tessera::nn
