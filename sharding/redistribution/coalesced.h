// Several arrays moved at once: those that make the same move over the same mesh axes share one collective.
#pragma once

#include <optional>
#include <vector>

#include "sharding/array/array_impl.h"
#include "sharding/placement/dtype.h"

namespace tessera {

namespace detail {

// arrays[i] as to[i]; shapes and element types must be equal. Not recorded for gradients. `in` is the element type in
// which they move, if not their own. `cause.operation` and its reason go to the ledger.
std::vector<ArrayPtr> convert_coalesced(const std::vector<ArrayPtr>& arrays, const std::vector<const Type*>& to,
                                        const Cause& cause, std::optional<DType> in = {});

}  // namespace detail

// Every array where its partner in `places` lies, under its partner's path.
void place_coalesced(const std::vector<Array*>& arrays, const std::vector<const Array*>& places, const char* verb,
                     std::optional<DType> in = {});

}  // namespace tessera
