// Conv and ConvTranspose: convolutions over one to three spatial dimensions, with features last.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nn/layers/init.h"
#include "nn/tree/param.h"
#include "sharding/operations/neural/convolution.h"
#include "sharding/operations/reduce/reductions.h"

namespace tessera::nn {

// Defaults of flax.linen.Conv.
struct ConvOptions {
  std::vector<int64_t> strides = {};   // default: 1 each
  Padding padding = "SAME";            // see ConvPadding
  std::vector<int64_t> dilation = {};  // dilation of the kernel; default: 1 each
  int64_t groups = 1;  // number of groups; each group of input features computes its own group of output features
  bool bias = true;
  Initializer kernel_init = init::lecun_normal();
  DTypePolicy dtypes = {};
};

// Padding of each spatial dimension as a static field of a module: a name, or else pairs (before, after).
struct ConvPadding {
  std::string name;  // "SAME", "SAME_LOWER", "VALID", or empty
  std::vector<std::pair<int64_t, int64_t>> pairs = {};
  operator Padding() const { return name.empty() ? Padding(pairs) : Padding(name.c_str()); }
};

// Convolves (batch, spatial..., in) -> (batch, spatial..., out), without flipping the kernel, as
// jax.lax.conv_general_dilated. The number of kernel sizes is the number of spatial dimensions: {3, 3} for images. The
// kernel's spatial dimensions have no name. With groups > 1, its input features have no name either, because there are
// fewer of them than features of x.
// Errors
//   invalid_argument: groups that do not divide in or out; no kernel size or more than three; a size, stride or
//     dilation below 1
//   shape_mismatch: an input with the wrong number of dimensions or features
struct Conv {
  Param kernel;               // (spatial..., in / groups, out)
  std::optional<Param> bias;  // (out), initially zeros
  std::vector<int64_t> strides, dilation;
  ConvPadding padding;
  int64_t groups = 1;
  DTypePolicy dtypes = {};

  static Conv init(const Key& key, const Axis& in, const Axis& out, const std::vector<int64_t>& kernel_size,
                   const ConvOptions& options = {});
  Array operator()(Operand x) const;
};

// Convolves (batch, spatial..., in) -> (batch, larger spatial..., out), as jax.lax.conv_transpose: inserts stride - 1
// zeros between the elements of x. Padding "SAME" gives size * stride positions, "VALID" all positions that the kernel
// reaches. Padding given as pairs is added to x after the zeros are inserted. The kernel is not flipped (PyTorch flips
// it). For kernel size k and dilation d, PyTorch's padding p and output_padding q correspond to
//   {{d (k - 1) - p, d (k - 1) - p + q}, ...}
// Errors: those of Conv.
struct ConvTranspose {
  Param kernel;               // (spatial..., in / groups, out)
  std::optional<Param> bias;  // (out), initially zeros
  std::vector<int64_t> strides, dilation;
  ConvPadding padding;
  int64_t groups = 1;
  DTypePolicy dtypes = {};

  static ConvTranspose init(const Key& key, const Axis& in, const Axis& out, const std::vector<int64_t>& kernel_size,
                            const ConvOptions& options = {});
  Array operator()(Operand x) const;
};

}  // namespace tessera::nn
