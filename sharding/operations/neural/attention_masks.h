// The masks of attention: which keys each query sees, by place and by segment.
#pragma once

#include <ATen/core/Tensor.h>

#include "sharding/array/array.h"

namespace tessera::detail {

// Query t of a block and key s of a block see each other by their distance offset + t - s in the text.
struct Places {
  int64_t queries, keys;
  int64_t offset;  // of the first query from the first key
  bool causal;
  int64_t window;  // 0: as far as the text goes
};

// Whether no query sees any key.
bool are_out_of_sight(const Places& places);
// (queries, keys), undefined where every key is in sight.
at::Tensor mask_of_places(const Places& places, const at::Tensor& like);
// (batch, 1, queries, keys) of segment ids (batch, queries) and (batch, keys).
at::Tensor mask_of_segments(const at::Tensor& queries, const at::Tensor& keys);

// Both may be absent. Errors (dtype_mismatch) that begin with the verb: a mask that is not of booleans, a bias whose
// type is not floating.
void check_mask_and_bias(const char* verb, const Array& mask, const Array& bias);
// Errors (invalid_argument): a window below 0, a softcap that is below 0 or not finite.
void check_window_and_softcap(const char* verb, int64_t window, double softcap);

}  // namespace tessera::detail
