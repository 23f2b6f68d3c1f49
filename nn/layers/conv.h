// Conv and ConvTranspose: convolutions over one to three spatial dims, features last.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nn/layers/dtype_policy.h"
#include "nn/layers/init.h"
#include "nn/tree/param.h"
#include "sharding/operations/neural/convolution.h"
#include "sharding/operations/reduce/reductions.h"

namespace tessera::nn {

// flax.linen.Conv's defaults.
struct ConvOptions {
  std::vector<int64_t> strides = {};   // 1 each unless given
  Padding padding = "SAME";            // see ConvPadding
  std::vector<int64_t> dilation = {};  // of the kernel, 1 each unless given
  int64_t groups = 1;                  // each group of input features feeds its own group of output features
  bool bias = true;
  Initializer kernel_init = init::lecun_normal();
  DTypePolicy dtypes = {};
};

// The padding of each spatial dim, as a static field of a module: a name, or else pairs (before, after).
struct ConvPadding {
  std::string name;  // "SAME", "SAME_LOWER", "VALID", or empty
  std::vector<std::pair<int64_t, int64_t>> pairs = {};
  operator Padding() const { return name.empty() ? Padding(pairs) : Padding(name.c_str()); }
};

// (batch, spatial dims..., in) -> (batch, spatial dims..., out): jax.lax.conv_general_dilated, without flipping the
// kernel. The number of kernel sizes is the number of spatial dims: {3, 3} for images. The kernel's spatial dims have
// no name; with groups > 1 its dim of input features has none either, since it is smaller than that of x.
// Errors: groups that do not divide in or out, other than one to three kernel sizes, a size, stride or dilation below 1
// (invalid_argument); an input with another number of dims or features (shape_mismatch).
struct Conv {
  Param kernel;               // (spatial dims..., in / groups, out)
  std::optional<Param> bias;  // (out), zeros at first
  std::vector<int64_t> strides, dilation;
  ConvPadding padding;
  int64_t groups = 1;
  DTypePolicy dtypes = {};

  static Conv init(const Key& key, const Axis& in, const Axis& out, const std::vector<int64_t>& kernel_size,
                   const ConvOptions& options = {});
  Array operator()(Operand x) const;
};

// (batch, spatial dims..., in) -> (batch, larger spatial dims..., out): jax.lax.conv_transpose. Between the elements of
// x, stride - 1 zeros are inserted. Padding "SAME" gives size * stride places, "VALID" all that the kernel reaches;
// pairs pad x after the zeros are inserted: PyTorch's padding p and output_padding q are {{d (k - 1) - p, d (k - 1) - p
// + q}, ...} for kernel size k and dilation d. The kernel is not flipped (PyTorch's is). Errors as Conv's.
struct ConvTranspose {
  Param kernel;               // (spatial dims..., in / groups, out)
  std::optional<Param> bias;  // (out), zeros at first
  std::vector<int64_t> strides, dilation;
  ConvPadding padding;
  int64_t groups = 1;
  DTypePolicy dtypes = {};

  static ConvTranspose init(const Key& key, const Axis& in, const Axis& out, const std::vector<int64_t>& kernel_size,
                            const ConvOptions& options = {});
  Array operator()(Operand x) const;
};

}  // namespace tessera::nn
