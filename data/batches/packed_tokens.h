// Batches of packed rows for language models: inputs, targets, and the segment ids that separate documents.
#pragma once

#include <concepts>
#include <cstdint>
#include <vector>

#include "data/streams/pack.h"
#include "nn/tree/tree.h"

namespace tessera::data {

// A batch of packed rows. Example: Loader(documents.pack({.length = 512}), stack_as<PackedBatch>, ...).
struct PackedBatch {
  NamedArray tokens{"batch", "seq"};       // (B, length)
  NamedArray segment_ids{"batch", "seq"};  // int32
  NamedArray positions{"batch", "seq"};    // int32
};

// A token and the weight of its prediction in the loss. `pack` accepts documents of these, as it does documents of ids.
struct WeightedToken {
  int32_t id = 0;
  float weight = 0;
  bool operator==(const WeightedToken&) const = default;
};

// B rows of T tokens, each made of several documents. targets[b][t] is the token that follows inputs[b][t].
// weights[b][t] is 1 if both tokens belong to one document, or the target's weight if it has one. It is 0 between
// documents and in the padding of a row.
struct PackedTokens {
  NamedArray inputs{"batch", "seq"};       // (B, T) int32
  NamedArray targets{"batch", "seq"};      // (B, T) int32
  NamedArray segment_ids{"batch", "seq"};  // (B, T) int32: segments of `inputs`
  // (B, max_segments) int32: where the segments of `inputs` begin, then T. Attention takes them as segment_starts.
  NamedArray segment_starts{"batch", none};
  NamedArray positions{"batch", "seq"};  // (B, T) int32: positions of `inputs`, from 0 in each document
  NamedArray weights{"batch", "seq"};    // (B, T) float32
};

// Collates packed rows of T + 1 tokens into PackedTokens:
//   Loader loader(documents.shuffle(seed).repeat().pack({.length = T + 1, .split_long = true}), packed_tokens,
//                 {.batch_size = 32});
// Errors
//   shape_mismatch: no rows; rows of different lengths; rows of fewer than two tokens
//   invalid_argument: a token below 0; max_segments below 0 or above 2^20; a row with more segments, padding included
struct PackedTokensBatcher {
  // Segments of a row at most: the max_sequences_per_bin of its pack, and one for padding. 0: as many as tokens. GPUs
  // compute attention without a mask if there are at most seq / 8 of them.
  int64_t max_segments = 0;

  PackedTokens operator()(const std::vector<PackedRow<int32_t>>& rows) const;
  template <std::same_as<WeightedToken> Token>
  PackedTokens operator()(const std::vector<PackedRow<Token>>& rows) const;
};
inline constexpr PackedTokensBatcher packed_tokens;

}  // namespace tessera::data
