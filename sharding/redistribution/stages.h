// Stages: moves arrays between a mesh and its sub-meshes, and from one sub-mesh to another, with gradients.
#pragma once

#include <vector>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// Returns `type` on another mesh: a sub-mesh of its mesh, its whole mesh, or another sub-mesh of its whole mesh.
const Type* type_on(const Type* type, const MeshImpl* mesh);
// Returns the same mesh rules on that mesh; null stays null.
const MeshRulesImpl* mesh_rules_on(const MeshRulesImpl* mesh_rules, const MeshImpl* mesh);

// Returns the sub-mesh on which an operation on these arrays runs. For arrays on several stages it is the last stage
// with a parameter, else the last stage. For arrays all on the whole mesh, with an activation among them, it is the
// first stage of the open tape, if that has stages. Null if the operation runs on the arrays' own mesh.
const MeshImpl* stage_of(const ArrayImpl* const* operands, int n);

// Returns the earliest stage with a parameter of these arrays; null if there is none.
const MeshImpl* first_stage_of(const std::vector<Array>& arrays);

// Returns the type to which `a` is converted on its own mesh before it moves to `to`. The type has no partial sums. If
// `a` is on the whole mesh, the type is not sharded along the axis of the stages. If a gradient is wanted, the type is
// reduced over that axis and over the axes that `to` is reduced over, so that one sum reduces a parameter's gradient.
const Type* leaving_type(const ArrayImpl& a, const Type* to, bool recorded);

// Whether activations of this thread may only move to later stages. Under one_f_one_b the first stage takes the next
// micro-batch before it could receive this one, and would wait for it forever.
bool& goes_forward_only();

// Moves `start`, which is `a` in leaving_type, to the other mesh; recorded.
// - From the whole mesh to a sub-mesh: nothing is communicated, because each device has its blocks. The gradient is a
//   partial sum over the axis of the stages.
// - From one sub-mesh to another: each device sends to its counterpart (a permute over that axis).
// - From a sub-mesh to the whole mesh: the result is a partial sum over that axis: the value on this stage, zeros on
// the
//   others.
ArrayPtr moved_between_stages(const ArrayImpl& a, const ArrayPtr& start, const MeshImpl* to, const Provenance& cause);

}  // namespace tessera::detail
