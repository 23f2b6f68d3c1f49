// Cross-entropy: per position, as a mean, and as a sum that can be added to others.
#pragma once

#include <cstdint>
#include <optional>

#include "sharding/operations/linalg/linear_algebra.h"

namespace tessera {

struct CrossEntropyOptions {
  Array weights = {};                                  // one per position, in the shape of labels; absent: all are 1
  std::optional<int64_t> ignore_label = std::nullopt;  // positions with this label do not count
  double label_smoothing = 0;                          // fraction of the target spread over the vocabulary
  double z_loss = 0;                                   // factor of logsumexp(logits)^2, which is added to each loss
};

// For all functions: logits (..., vocab), labels (...) integers. The loss of a position is -log softmax(logits)[label].
// - With label smoothing a, it is (1 - a) times that plus a times the mean of -log softmax(logits) over the vocabulary
//   (PyTorch's).
// - With z_loss, z_loss * logsumexp(logits)^2 is added (PaLM's).
// Logits sharded over vocab are not gathered: two small all-reduces, (...) and (2, ...), or (3, ...) with label
// smoothing.
//
// Errors
//   invalid_argument: a label outside [0, vocab) that is not the ignored one; label_smoothing outside [0, 1]; a
//     negative z_loss
//   dtype_mismatch: labels that are not integers; logits that are not floating
//   shape_mismatch: labels or weights whose shape is not (...); a vocab of 0

// Returns the mean over all positions that are not ignored: sum(weights * losses) / sum(weights), a scalar. If every
// label is ignored, the loss and its gradient are 0 (PyTorch's are NaN). Error (shape_mismatch): no labels at all.
Array cross_entropy(Operand logits, const Array& labels, const CrossEntropyOptions& options = {});

// Returns the sum of weights * losses and the sum of the weights, in float32 at least, for losses that are added up
// over micro-batches.
WeightedSum cross_entropy_sum(Operand logits, const Array& labels, const CrossEntropyOptions& options = {});

// Returns weights * losses (...) per position, 0 where the label is ignored.
Array cross_entropy_per_position(Operand logits, const Array& labels, const CrossEntropyOptions& options = {});

}  // namespace tessera
