// Checks of options, labels as columns, and weights of positions, for all losses.
#pragma once

#include "sharding/operations/neural/losses.h"

namespace tessera::detail {

// Throws the errors of losses.h that do not depend on the values of the labels. `positions` is the shape that labels
// and weights should have, `of` the array that determines it, `vocab` the number of classes.
void check_loss(const char* verb, const Array& of, const Shape& positions, const Array& labels, int64_t vocab,
                const CrossEntropyOptions& options);

// Returns the weights of the positions in this type: options.weights (absent: all are 1), 0 where the label is ignored.
Array position_weights(const Array& labels, const CrossEntropyOptions& options, DType dtype);

// The labels of one block of positions.
struct Labels {
  at::Tensor columns;  // int64; 0 for an ignored label
  at::Tensor ignored;  // undefined if no label can be ignored

  at::Tensor without_ignored(const at::Tensor& of_positions) const;  // 0 where the label is ignored
};

// The positions of labels in a block of `width` columns of the vocabulary that starts at `offset`.
struct LabelColumns {
  at::Tensor column;  // (..., 1), within the block
  at::Tensor here;    // 1 where the label is in the block, else 0
};
LabelColumns columns_in(const Labels& labels, int64_t offset, int64_t width, at::ScalarType type);

// Reads the labels. Error (invalid_argument): a label outside [0, vocab) that is not the ignored one.
Labels read_labels(const char* verb, const at::Tensor& labels, int64_t vocab, std::optional<int64_t> ignore_label);

}  // namespace tessera::detail
