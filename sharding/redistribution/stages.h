// Stages: arrays on their way between a mesh and its sub-meshes, and from one sub-mesh to another, with gradients.
#pragma once

#include <vector>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// `type` on a sub-mesh of its mesh, on the mesh that its own is cut from, or on another sub-mesh of that.
const Type* type_on(const Type* type, const MeshImpl* mesh);
// The same layout there; null stays null.
const LayoutImpl* layout_on(const LayoutImpl* layout, const MeshImpl* mesh);

// The sub-mesh on which an operation on these arrays runs: of arrays on several stages the last one that has a
// parameter, else the last; of arrays that all lie on the whole mesh, an activation among them, the first stage of the
// open tape if it has stages. Null where the operation runs on the arrays' own mesh.
const MeshImpl* stage_of(const ArrayImpl* const* operands, int n);

// The earliest stage that has a parameter of these; null if none has.
const MeshImpl* first_stage_of(const std::vector<Array>& arrays);

// `a` as `to`, where are_stages(a's mesh, to's mesh). From the whole mesh to a sub-mesh nothing moves: each device has
// its part, and the gradient is a term of a sum over the cut axis. From one sub-mesh to another each device sends to
// the one at its place (a permute over the cut axis). From a sub-mesh to the whole mesh it is an all_reduce of the
// value and zeros.
ArrayPtr convert_between_stages(ArrayImpl& a, const ArrayPtr& self, const Type* to, const Cause& cause);

// The arrays as an operation on them all would read them: moved to one stage, if they lie on several.
std::vector<Array> on_one_stage(std::vector<Array> operands, const Cause& cause);

}  // namespace tessera::detail
