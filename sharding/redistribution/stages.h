// Stages: arrays on their way between a mesh and its sub-meshes, and from one sub-mesh to another, with gradients.
#pragma once

#include <vector>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// `type` on a sub-mesh of its mesh, on the mesh that its own is cut from, or on another sub-mesh of that.
const Type* type_on(const Type* type, const MeshImpl* mesh);
// The same mesh rules there; null stays null.
const MeshRulesImpl* mesh_rules_on(const MeshRulesImpl* mesh_rules, const MeshImpl* mesh);

// The sub-mesh on which an operation on these arrays runs: of arrays on several stages the last one that has a
// parameter, else the last; of arrays that all lie on the whole mesh, an activation among them, the first stage of the
// open tape if it has stages. Null where the operation runs on the arrays' own mesh.
const MeshImpl* stage_of(const ArrayImpl* const* operands, int n);

// The earliest stage that has a parameter of these; null if none has.
const MeshImpl* first_stage_of(const std::vector<Array>& arrays);

// The type on its own mesh in which `a` leaves that for `to`: without a pending sum; from the whole mesh not cut along
// the axis of the stages and, where a gradient is wanted, reduced over it and over the axes that `to` is reduced over,
// so that a parameter's gradient is summed over all of them at once.
const Type* leaving_type(const ArrayImpl& a, const Type* to, bool recorded);

// Whether activations of this thread may only go to later stages: under one_f_one_b the first stage has the next
// micro-batch before it takes this one back, and would wait for what comes back to it forever.
bool& goes_forward_only();

// `start`, which is `a` in that type, on the other mesh, recorded. From the whole mesh to a sub-mesh nothing moves:
// each device has its part, and the gradient is a term of a sum over the cut axis. From one sub-mesh to another each
// device sends to the one at its place (a permute over the cut axis). From a sub-mesh to the whole mesh the result is a
// pending sum over the cut axis, of the value and zeros.
ArrayPtr moved_between_stages(const ArrayImpl& a, const ArrayPtr& start, const MeshImpl* to, const Provenance& cause);

}  // namespace tessera::detail
