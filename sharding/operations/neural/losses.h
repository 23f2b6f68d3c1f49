// Cross-entropy: of each position, as a mean, and as a sum that can be added to others.
#pragma once

#include <cstdint>
#include <optional>

#include "sharding/operations/linalg/linear_algebra.h"

namespace tessera {

struct CrossEntropyOptions {
  Array weights = {};                                  // of the positions, the shape of labels; absent: all are 1
  std::optional<int64_t> ignore_label = std::nullopt;  // positions with this label count for nothing
  double label_smoothing = 0;                          // part of the target that is spread over the whole vocabulary
  double z_loss = 0;                                   // times logsumexp(logits)^2, added to each loss
};

// The loss of a position is -log softmax(logits)[label]; with label smoothing a, (1 - a) times that plus a times the
// mean of -log softmax(logits) over the vocabulary (PyTorch's); with z_loss, plus z_loss * logsumexp(logits)^2
// (PaLM's). logits (..., vocab), labels (...) integers. Logits sharded over vocab are not gathered: two small
// all-reduces, (...) and (2, ...), or (3, ...) with label smoothing. Errors: a label outside [0, vocab) that is not the
// ignored one, label_smoothing outside [0, 1], a negative z_loss (invalid_argument); labels that are not integers,
// logits that are not floating (dtype_mismatch); labels or weights of another shape than (...), a vocab of 0
// (shape_mismatch).

// The mean over all positions that are not ignored: sum(weights * losses) / sum(weights), a scalar. Where every label
// is ignored, the loss and its gradient are 0 (PyTorch's are NaN). Error (shape_mismatch): no labels at all.
Array cross_entropy(Operand logits, const Array& labels, const CrossEntropyOptions& options = {});

// The same before the division, for losses that are added up over micro-batches: the sum of weights * losses and that
// of the weights, in float32 at least.
WeightedSum cross_entropy_sum(Operand logits, const Array& labels, const CrossEntropyOptions& options = {});

// weights * losses (...) themselves, 0 where the label is ignored.
Array cross_entropy_per_position(Operand logits, const Array& labels, const CrossEntropyOptions& options = {});

}  // namespace tessera
