// Several arrays moved at once: those with the same collective, mesh axes and element type count as one communication.
#pragma once

#include <optional>
#include <vector>

#include "sharding/array/array_impl.h"
#include "sharding/placement/dtype.h"
#include "sharding/redistribution/communicate.h"

namespace tessera {

namespace detail {

// The way of `a` to the placement `to`, in this element type.
TransferItem item_of(const ArrayImpl& a, const Type* to, DType in);

// Returns the value of a replicated array as an array that was never placed.
ArrayPtr taken_off_mesh(const ArrayPtr& a);

// Converts arrays[i] to to[i]; their shapes and element types must be equal. Not recorded for gradients. `in` is the
// element type in which they move, if not their own. `cause.operation` and its reason go to the ledger.
std::vector<ArrayPtr> convert_coalesced(const std::vector<ArrayPtr>& arrays, const std::vector<const Type*>& to,
                                        const Provenance& cause, std::optional<DType> in = {});

// The same, in groups of some MiB in the order of `arrays`, each of which is one communication. What comes from other
// processes is on its way when this returns: each result waits for its tensors at its first use (materialized).
std::vector<ArrayPtr> convert_ahead(const std::vector<ArrayPtr>& arrays, const std::vector<const Type*>& to,
                                    const Provenance& cause);

}  // namespace detail

// Moves every array to the placement of its partner in `places`, and gives it its partner's path.
void place_coalesced(const std::vector<Array*>& arrays, const std::vector<const Array*>& places, const char* verb,
                     std::optional<DType> in = {});

}  // namespace tessera
