// Cross-entropy of a linear head that computes its logits chunk by chunk.
#pragma once

#include "sharding/operations/neural/losses.h"

namespace tessera {

struct LinearCrossEntropyOptions {
  Array weights = {};  // weights to z_loss: see CrossEntropyOptions
  std::optional<int64_t> ignore_label = std::nullopt;
  double label_smoothing = 0;
  double z_loss = 0;
  bool transposed = false;  // the kernel is (vocab, embed), as an embedding's rows are
  // The number of classes; 0: all columns of the kernel. Columns from this number on are padding: they have no logits,
  // and their gradient is 0.
  int64_t vocab = 0;
  std::optional<double> logit_softcap = std::nullopt;  // cap tanh(logits / cap) replaces the logits (Gemma 2)
  // The number of a device's positions whose logits exist at one time. Default: 512; on a GPU, the number whose logits
  // take about 1 GB. A Forecast does not take this GPU default into account.
  std::optional<int64_t> chunk = std::nullopt;
};

// Returns cross_entropy(matmul(x, kernel), labels) for x (..., embed), kernel (embed, vocab), labels (...) integers.
// The logits are computed for one chunk of positions after another. If a gradient is wanted, the gradients of x and
// kernel are computed from each chunk immediately, so the backward pass only scales them. (Hsu et al., "Liger Kernel:
// Efficient Triton kernels for LLM training", 2024.)
//
// Memory in addition to the gradients: chunk * vocab elements, twice that with a softcap. For operands of half
// precision the product is rounded to their type, as matmul's is, except on a GPU; the softmax and all sums are in
// float32.
//
// x may be sharded over all dimensions but embed. A kernel sharded over vocab is not gathered: each chunk takes two
// small all-reduces, (chunk) and (2, chunk), or (3, chunk) with label smoothing. A kernel sharded over embed is
// gathered once. Inside a differentiable tape within another tape all logits are computed at once, because second
// derivatives need them.
//
// Errors
//   those of cross_entropy
//   invalid_argument: chunk < 1; a softcap that is not positive; a vocab larger than the kernel's
//   shape_mismatch: shapes that do not fit
Array linear_cross_entropy(Operand x, const Array& kernel, const Array& labels,
                           const LinearCrossEntropyOptions& options = {});

// Returns the sums before the division, in float32 at least, for losses that are added up over micro-batches.
WeightedSum linear_cross_entropy_sum(Operand x, const Array& kernel, const Array& labels,
                                     const LinearCrossEntropyOptions& options = {});

}  // namespace tessera
