// head_cross_entropy: the loss of a decoder's head, computed in chunks of logits.
#pragma once

#include "nn/layers/embedding.h"
#include "nn/layers/linear.h"
#include "sharding/operations/neural/linear_cross_entropy.h"

namespace tessera::nn {

// cross_entropy(head(x), labels) of a Linear, cross_entropy(head.attend(x), labels) of an Embedding, by
// tessera::linear_cross_entropy, whose options they take; `transposed` follows from the head, and so does the `vocab`
// of an Embedding unless given. A decoder has its loss in one line:
//   Array loss(const Array& ids, const Array& labels) const {
//     return nn::head_cross_entropy(head, hidden(ids), labels, {.ignore_label = -100});
//   }
// Of the head's DTypePolicy, `compute` holds for x and the kernel; the loss is float32 at least.
// Errors: another last dim of x than the head's (shape_mismatch); a head with a bias (invalid_argument); those of
// tessera::linear_cross_entropy.
Array head_cross_entropy(const Linear& head, Operand x, const Array& labels, LinearCrossEntropyOptions options = {});
Array head_cross_entropy(const Embedding& head, Operand x, const Array& labels, LinearCrossEntropyOptions options = {});

// The same before the division, for micro-batches of unequal weight (nn/transformations/accumulate_gradients.h).
WeightedSum head_cross_entropy_sum(const Linear& head, Operand x, const Array& labels,
                                   LinearCrossEntropyOptions options = {});
WeightedSum head_cross_entropy_sum(const Embedding& head, Operand x, const Array& labels,
                                   LinearCrossEntropyOptions options = {});

}  // namespace tessera::nn
