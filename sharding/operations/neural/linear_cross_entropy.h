// Cross-entropy of a linear head whose logits never exist whole.
#pragma once

#include "sharding/operations/neural/losses.h"

namespace tessera {

struct LinearCrossEntropyOptions {
  Array weights = {};  // these four: see CrossEntropyOptions
  std::optional<int64_t> ignore_label = std::nullopt;
  double label_smoothing = 0;
  double z_loss = 0;
  bool transposed = false;  // the kernel is (vocab, embed), as an embedding's rows are
  // The classes are the kernel's first so many; those beyond are padding, which is in no logit and whose gradient is 0.
  // 0: all.
  int64_t vocab = 0;
  std::optional<double> logit_softcap = std::nullopt;  // cap tanh(logits / cap) in place of the logits (Gemma 2)
  // Positions of a device whose logits exist at one time. None: 512; on a GPU as many as have some 1 GB of logits,
  // which a Forecast does not know.
  std::optional<int64_t> chunk = std::nullopt;
};

// cross_entropy(matmul(x, kernel), labels): x (..., embed), kernel (embed, vocab), labels (...) integers. The logits
// are made for one chunk of positions after another, and where a gradient is wanted, those of x and kernel are computed
// from each chunk at once, so that the backward pass has only to scale them. (Hsu et al., "Liger Kernel: Efficient
// Triton kernels for LLM training", 2024.) Memory beyond the gradients: chunk * vocab elements, twice that with a
// softcap. For operands of half precision the product is rounded to their type, as matmul's is, but on a GPU; what
// becomes of it, the softmax and all sums, is in float32. x may be sharded over all dims but embed. A kernel sharded
// over vocab stays where it is: each chunk takes two small all-reduces, (chunk) and (2, chunk), or (3, chunk) with
// label smoothing. One sharded over embed is gathered, once. Inside a differentiable tape within another tape the
// logits are made whole: second derivatives need them. Errors: those of cross_entropy; chunk < 1, a softcap that is not
// positive, a vocab that the kernel has not (invalid_argument); shapes that do not fit (shape_mismatch).
Array linear_cross_entropy(Operand x, const Array& kernel, const Array& labels,
                           const LinearCrossEntropyOptions& options = {});

// The same before the division, for losses that are added up over micro-batches, in float32 at least.
WeightedSum linear_cross_entropy_sum(Operand x, const Array& kernel, const Array& labels,
                                     const LinearCrossEntropyOptions& options = {});

}  // namespace tessera
