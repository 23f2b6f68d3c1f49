// Batches of the right shape whose values do not matter: zeros, which take no memory.
#pragma once

#include <cstdint>

#include <tessera/data/packed_tokens.h>
#include <tessera/data/text.h>
#include <tessera/sharding/operations.h>

namespace tessera::examples {

inline data::TokenBatch empty_rows(int64_t rows, int64_t seq) {
  data::TokenBatch batch;
  for (NamedArray* ids : {&batch.inputs, &batch.targets}) *ids = zeros({rows, seq}, int32);
  return batch;
}

inline data::PackedTokens empty_packed_rows(int64_t rows, int64_t seq) {
  data::PackedTokens batch;
  for (NamedArray* ids : {&batch.inputs, &batch.targets, &batch.segment_ids, &batch.positions})
    *ids = zeros({rows, seq}, int32);
  batch.weights = zeros({rows, seq}, float32);
  return batch;
}

}  // namespace tessera::examples
