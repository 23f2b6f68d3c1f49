// Makes a batch of distinct rows of ids. Its targets are the inputs.
#pragma once

#include <vector>

#include "data/batches/token_batch.h"
#include "sharding/operations.h"

namespace tessera::examples {

inline data::TokenBatch counted_rows(int64_t rows, int64_t seq, int64_t vocab = 256) {
  std::vector<int32_t> ids(static_cast<size_t>(rows * seq));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 37 % static_cast<size_t>(vocab));
  data::TokenBatch batch;
  batch.inputs = array<int32_t>(ids, {rows, seq});
  batch.targets = batch.inputs.value;
  return batch;
}

}  // namespace tessera::examples
