// The masks of attention: the keys that each query sees, by position and by segment.
#pragma once

#include <ATen/core/Tensor.h>

#include "sharding/array/array.h"

namespace tessera::detail {

// The positions of a block of queries and keys. Query t and key s are at the distance offset + t - s in the sequence.
struct Places {
  int64_t queries, keys;
  int64_t offset;  // first query's position minus first key's position
  bool causal;
  int64_t window;         // 0: unlimited
  int64_t chunk = 0;      // 0: unlimited
  int64_t first_key = 0;  // the first key's position
};

// Returns true if no query sees any key.
bool are_out_of_sight(const Places& places);
// Returns the mask (queries, keys); undefined if every query sees every key.
at::Tensor mask_of_places(const Places& places, const at::Tensor& like);
// Returns the mask (batch, 1, queries, keys) of segment ids (batch, queries) and (batch, keys).
at::Tensor mask_of_segments(const at::Tensor& queries, const at::Tensor& keys);

// Checks mask and bias, both of which may be absent. Error (dtype_mismatch), with the verb first: a mask that is not
// boolean, a bias whose type is not floating.
void check_mask_and_bias(const char* verb, const Array& mask, const Array& bias);
// Throws an Error (invalid_argument) for a window or chunk below 0, or a softcap that is below 0 or not finite.
void check_limits(const char* verb, int64_t window, int64_t chunk, double softcap);

}  // namespace tessera::detail
