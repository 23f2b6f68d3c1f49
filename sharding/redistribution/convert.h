// convert: an array in another form, the one that is there already where there is one.
#pragma once

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// The form of `a` as `to` that is there already: `a` itself, a leaf, or a conversion that was kept; else null.
const ArrayPtr* known_form(const ArrayImpl& a, const ArrayPtr& self, const Type* to, bool recorded);

// `a` as `to`, recorded for gradients where they are wanted. Shapes and element types must be equal. A weight that is
// gathered for a gradient comes on loan: see borrowed_gather.h.
ArrayPtr convert(ArrayImpl& a, const ArrayPtr& self, const Type* to, const Cause& cause);

}  // namespace tessera::detail
