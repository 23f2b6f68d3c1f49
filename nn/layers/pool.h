// Pools: the maximum or the mean of each window over one to three spatial dimensions, with features last.
#pragma once

#include <vector>

#include "nn/layers/conv.h"

namespace tessera::nn {

// Pools each window: (..., spatial..., features) -> the same with fewer positions. Defaults are as in
// flax.linen.max_pool and avg_pool: strides of 1 and padding "VALID". Along a sharded spatial dimension, each shard
// fetches what its windows need from other shards (sharding/operations/neural/convolution.h).
// Errors
//   shape_mismatch: too few dimensions for the window and the features; a window that fits nowhere
//   dtype_mismatch: a type that is not floating
struct MaxPool {
  std::vector<int64_t> window;
  std::vector<int64_t> strides = {};  // default: 1 each
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

// Pools to given sizes: (..., spatial..., features) -> (..., sizes..., features). Position i of a dimension of size n
// is the mean of the elements from floor(i n / size) to ceil((i + 1) n / size), as in torch.nn.AdaptiveAvgPool.
// Equinox's windows are the same if size divides n.
// Errors
//   invalid_argument: no size or more than three; a size below 1
//   shape_mismatch: too few dimensions; a spatial dimension of size 0
struct AdaptiveAvgPool {
  std::vector<int64_t> sizes;
  Array operator()(Operand x) const;
};

struct AdaptiveMaxPool {  // the maximum of the same windows
  std::vector<int64_t> sizes;
  Array operator()(Operand x) const;
};

}  // namespace tessera::nn
