// Batches for language models over bytes: what the model reads and what it has to say.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/tree.h"

namespace tessera::data {

// B rows of T tokens; int32, the bytes' values 0 to 255. targets[b][t] is the token that follows inputs[b][t].
struct TokenBatch {
  NamedArray inputs{"batch", "seq"};   // (B, T)
  NamedArray targets{"batch", "seq"};  // (B, T)
};

// The collate function of byte windows: B windows of T + 1 bytes give inputs = window[0, T) and
// targets = window[1, T + 1). The arrays are uncommitted; from_process_local (data/to_global.h) places them.
//
//   auto tokens = windows(ByteSource::open({"books"}), 257).shuffle(seed).repeat();
//   Loader loader(tokens, token_batch, {.batch_size = 32});
//
// Errors (shape_mismatch): no windows, windows of different lengths or of fewer than two bytes.
TokenBatch token_batch(const std::vector<std::vector<uint8_t>>& windows);

}  // namespace tessera::data
