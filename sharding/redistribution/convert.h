// convert: an array in another placement, reused if it was kept from an earlier use.
#pragma once

#include <vector>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// `a` as `to`, if it is there already: `a` itself (`self`), a leaf, or a conversion that was kept; else null.
const ArrayPtr* known_form(const ArrayImpl& a, const ArrayPtr& self, const Type* to, bool recorded);

// `a` as `to`, recorded for gradients where they are wanted. Shapes and element types must be equal. A weight that is
// gathered for a gradient is freed after its use if the tape decides so (conversion_policy.h).
// `to` may lie on another stage of the array's mesh (stages.h), or on the whole mesh.
ArrayPtr convert(ArrayImpl& a, const ArrayPtr& self, const Type* to, const Provenance& cause);

// The arrays as an operation on them all would read them: moved to one stage, if they lie on several.
std::vector<Array> on_one_stage(std::vector<Array> operands, const Provenance& cause);

}  // namespace tessera::detail
