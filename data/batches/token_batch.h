// Batches for language models over bytes or tokens: the model's inputs and its targets.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/tree/tree.h"

namespace tessera::data {

// B rows of T tokens, int32. targets[b][t] is the token that follows inputs[b][t].
struct TokenBatch {
  NamedArray inputs{"batch", "seq"};   // (B, T)
  NamedArray targets{"batch", "seq"};  // (B, T)
};

// Collates windows of bytes (uint8) or tokens (uint16, uint32, int32). B windows of T + 1 values give inputs =
// window[0, T) and targets = window[1, T + 1). The arrays are not placed on a mesh; from_process_local
// (data/batches/to_global.h) or shard_batches (data/batches/shard_batches.h) place them.
//
//   auto tokens = windows(ByteSource::open({"books"}), 257).shuffle(seed).repeat();
//   Loader loader(tokens, token_batch, {.batch_size = 32});
//
// Errors
//   shape_mismatch: no windows; windows of different lengths; windows of fewer than two values
//   invalid_argument: a token above the largest int32 or below 0
struct TokenBatcher {
  TokenBatch operator()(const std::vector<std::vector<uint8_t>>& windows) const;
  template <class Token>
  TokenBatch operator()(const std::vector<std::vector<Token>>& windows) const;
};
inline constexpr TokenBatcher token_batch;

}  // namespace tessera::data
