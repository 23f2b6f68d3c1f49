// Batches of packed rows for language models: inputs, targets, and what keeps documents apart.
#pragma once

#include <cstdint>
#include <vector>

#include "data/streams/pack.h"
#include "nn/tree/tree.h"

namespace tessera::data {

// The batch of packed rows: Loader(documents.pack({.length = 512}), stack_as<PackedBatch>, ...).
struct PackedBatch {
  NamedArray tokens{"batch", "seq"};       // (B, length)
  NamedArray segment_ids{"batch", "seq"};  // int32
  NamedArray positions{"batch", "seq"};    // int32
};

// B rows of T tokens, each made of several documents. targets[b][t] is the token that follows inputs[b][t];
// weights[b][t] is 1 where both are of one document, and 0 between documents and in the filling of a row.
struct PackedTokens {
  NamedArray inputs{"batch", "seq"};       // (B, T) int32
  NamedArray targets{"batch", "seq"};      // (B, T) int32
  NamedArray segment_ids{"batch", "seq"};  // (B, T) int32: of the inputs
  NamedArray positions{"batch", "seq"};    // (B, T) int32: of the inputs, in their documents
  NamedArray weights{"batch", "seq"};      // (B, T) float32
};

// The collate function of packed rows of T + 1 tokens:
//   Loader loader(documents.shuffle(seed).repeat().pack({.length = T + 1, .split_long = true}), packed_tokens,
//                 {.batch_size = 32});
// Errors: no rows, rows of different lengths or of fewer than two tokens (shape_mismatch); a token below 0
// (invalid_argument).
struct PackedTokensBatcher {
  PackedTokens operator()(const std::vector<PackedRow<int32_t>>& rows) const;
};
inline constexpr PackedTokensBatcher packed_tokens;

}  // namespace tessera::data
