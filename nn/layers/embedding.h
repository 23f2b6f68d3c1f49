// Embedding and head_cross_entropy, the loss of a decoder's head in chunks of logits.
#pragma once

#include "nn/layers/init.h"
#include "nn/layers/linear.h"
#include "nn/tree/param.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/neural/linear_cross_entropy.h"

namespace tessera::nn {

struct Embedding {
  Param tokens;  // (vocab, embed)
  DTypePolicy dtypes = {};
  int64_t vocab = 0;  // number of ids; the rows after them are padding; 0: no padding

  // Makes rows with a normal distribution of standard deviation 0.02, as GPT-2. Equinox and PyTorch use
  // init::normal(1).
  static Embedding init(const Key& key, const Axis& vocab, const Axis& embed,
                        const Initializer& initializer = init::normal(0.02), const DTypePolicy& dtypes = {});
  // Looks up rows: ids (...) of integers in [0, vocab) -> (..., embed). Error (invalid_argument): an id out of range.
  Array operator()(Operand ids) const;
  // Returns logits for an output head that shares the rows: x (..., embed) -> x tokens^T (..., vocab), including the
  // logits of padding. Error (shape_mismatch): the last dimension of x is not embed.
  Array attend(Operand x) const;
};

// Returns cross_entropy(head(x), labels) of a Linear, or cross_entropy(head.attend(x), labels) of an Embedding,
// computed by tessera::linear_cross_entropy. `options` are passed to it. The kind of head determines
// `transposed`. The default of `vocab` is the Embedding's own. The loss of a decoder is one line:
//   Array loss(const Array& ids, const Array& labels) const {
//     return nn::head_cross_entropy(head, hidden(ids), labels, {.ignore_label = -100});
//   }
// `compute` of the head's DTypePolicy applies to x and the kernel; the loss is float32 or wider.
// Errors, in addition to those of tessera::linear_cross_entropy
//   shape_mismatch: the last dimension of x is not the head's
//   invalid_argument: a head with a bias
Array head_cross_entropy(const Linear& head, Operand x, const Array& labels, LinearCrossEntropyOptions options = {});
Array head_cross_entropy(const Embedding& head, Operand x, const Array& labels, LinearCrossEntropyOptions options = {});

// Returns sum and weight before the division, for micro-batches of unequal weight
// (nn/transformations/accumulate_gradients.h).
WeightedSum head_cross_entropy_sum(const Linear& head, Operand x, const Array& labels,
                                   LinearCrossEntropyOptions options = {});
WeightedSum head_cross_entropy_sum(const Embedding& head, Operand x, const Array& labels,
                                   LinearCrossEntropyOptions options = {});

}  // namespace tessera::nn
