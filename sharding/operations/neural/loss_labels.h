// What the losses share: checked options, labels as columns, the weights of positions.
#pragma once

#include "sharding/operations/neural/losses.h"

namespace tessera::detail {

// Errors: those of losses.h that do not depend on the values of the labels. `positions` is the shape that labels and
// weights should have, `of` the array that says so, `vocab` the number of classes.
void check_loss(const char* verb, const Array& of, const Shape& positions, const Array& labels, int64_t vocab,
                const CrossEntropyOptions& options);

// What each position weighs, in this type: options.weights, 0 where the label is ignored. Absent: all weigh 1.
Array position_weights(const Array& labels, const CrossEntropyOptions& options, DType dtype);

// The labels of one block of positions.
struct Labels {
  at::Tensor columns;  // int64; an ignored one is 0
  at::Tensor ignored;  // undefined: none can be

  at::Tensor without_ignored(const at::Tensor& of_positions) const;  // 0 where the label is ignored
};

// Where labels lie in a block of `width` columns of the vocabulary, the first of which is `offset`.
struct LabelColumns {
  at::Tensor column;  // (..., 1), within the block
  at::Tensor here;    // 1 where the label lies in the block, else 0
};
LabelColumns columns_in(const Labels& labels, int64_t offset, int64_t width, at::ScalarType type);

// Error (invalid_argument): a label outside [0, vocab) that is not the ignored one.
Labels read_labels(const char* verb, const at::Tensor& labels, int64_t vocab, std::optional<int64_t> ignore_label);

}  // namespace tessera::detail
