// Embedding: a row for each token, and the same rows as a tied head.
#pragma once

#include "nn/init.h"
#include "nn/param.h"
#include "sharding/operations.h"

namespace tessera::nn {

struct Embedding {
  Param tokens;  // (vocab, embed)

  static Embedding init(const Key& key, const Axis& vocab, const Axis& embed,
                        const Initializer& initializer = init::normal(0.02));
  // ids (...) of integers in [0, vocab) -> (..., embed).
  Array operator()(Operand ids) const;
  // x (..., embed) -> logits (..., vocab) = x tokens^T: the output head that shares the rows.
  Array attend(Operand x) const;
};

}  // namespace tessera::nn
