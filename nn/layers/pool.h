// Pools: the maximum or the mean of each window over one to three spatial dims, features last.
#pragma once

#include <vector>

#include "nn/layers/conv.h"

namespace tessera::nn {

// (..., spatial dims..., features) -> the same with fewer places. The defaults of flax.linen.max_pool and avg_pool:
// strides of 1 and padding "VALID". Along a sharded spatial dim, each shard fetches what its windows need from others
// (sharding/operations/neural/convolution.h). Errors: too few dims for the window and the features, a window that fits
// nowhere (shape_mismatch), a type that is not floating (dtype_mismatch).
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
  bool count_include_pad = true;  // the mean counts padding as elements of value 0

  Array operator()(Operand x) const;
};

// (..., spatial dims..., features) -> (..., sizes..., features): place i of a dim of size n is the mean of the elements
// from floor(i n / size) to ceil((i + 1) n / size), as in torch.nn.AdaptiveAvgPool (Equinox's windows are the same
// where size divides n). Errors: other than one to three sizes, a size below 1 (invalid_argument); too few dims, a
// spatial dim of size 0 (shape_mismatch).
struct AdaptiveAvgPool {
  std::vector<int64_t> sizes;
  Array operator()(Operand x) const;
};

struct AdaptiveMaxPool {  // the largest element of the same windows
  std::vector<int64_t> sizes;
  Array operator()(Operand x) const;
};

}  // namespace tessera::nn
