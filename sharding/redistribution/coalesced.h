// Converts several arrays with one communication per collective, mesh axes and element type.
#pragma once

#include <optional>
#include <vector>

#include "sharding/array/array_impl.h"
#include "sharding/placement/dtype.h"
#include "sharding/redistribution/communicate.h"

namespace tessera {

namespace detail {

// Returns the steps and tensors that convert `a` to `to`, communicated in the element type `in`.
TransferItem item_of(const ArrayImpl& a, const Type* to, DType in);

// Returns the value of a replicated array as an array that was never placed.
ArrayPtr taken_off_mesh(const ArrayPtr& a);

struct ConvertOptions {
  std::optional<DType> in = {};  // the element type in which the arrays are communicated; nullopt: each array's own
  // Communicates in groups of some MiB, in the order of `arrays`, and returns while the communication between processes
  // is under way. Each result waits for its tensors at its first use (materialized).
  bool ahead = false;
};
// Converts arrays[i] to to[i]; shapes and element types must be equal. Not recorded for gradients. The ledger shows
// `cause.operation` and its reason.
std::vector<ArrayPtr> convert_coalesced(const std::vector<ArrayPtr>& arrays, const std::vector<const Type*>& to,
                                        const Provenance& cause, const ConvertOptions& options = {});

}  // namespace detail

// Converts each array to the sharding of its counterpart in `places`, and gives it the counterpart's path.
void place_coalesced(const std::vector<Array*>& arrays, const std::vector<const Array*>& places, const char* verb,
                     std::optional<DType> in = {});

}  // namespace tessera
