// Embedding: one row for each token, and the same rows as a tied output head.
#pragma once

#include "nn/layers/dtype_policy.h"
#include "nn/layers/init.h"
#include "nn/tree/param.h"
#include "sharding/operations/elementwise/elementwise.h"

namespace tessera::nn {

struct Embedding {
  Param tokens;  // (vocab, embed)
  DTypePolicy dtypes = {};
  int64_t vocab = 0;  // its rows from there on are padding, of which no id is allowed; 0: none is

  // Normal with standard deviation 0.02, as GPT-2; Equinox and PyTorch start with init::normal(1).
  static Embedding init(const Key& key, const Axis& vocab, const Axis& embed,
                        const Initializer& initializer = init::normal(0.02), const DTypePolicy& dtypes = {});
  // ids (...) of integers in [0, vocab) -> (..., embed). Error (invalid_argument): another id.
  Array operator()(Operand ids) const;
  // x (..., embed) -> logits (..., vocab) = x tokens^T, those of padding too: the output head that shares the rows.
  // Error (shape_mismatch): another last dim than embed.
  Array attend(Operand x) const;
};

}  // namespace tessera::nn
