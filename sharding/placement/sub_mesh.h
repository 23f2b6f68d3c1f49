// sub_mesh: the devices of a mesh at one coordinate of one of its axes, as a mesh of its own.
#pragma once

#include <cstdint>
#include <string_view>

#include "sharding/placement/mesh.h"

namespace tessera {

// The devices of `mesh` at coordinate `at` along `mesh_axis`. It has the axes of `mesh`, that one of size one, and
// equal sub-meshes are the same pointer. With several processes all of them may name it, and those that have none of
// its devices go through the same program: there its arrays have shapes and placements but no data, and nothing is
// computed or communicated for them (is_abstract() is true).
//   sub_mesh(make_mesh({{"pipe", 2}, {"data", 4}}), "pipe", 1)      // the second half: pipe=1, data=4
// An operation on arrays of several sub-meshes along one axis, and of the mesh itself, runs on one sub-mesh: that of
// its parameters, else the last; activations move there, with gradients, and of an array on the whole mesh each
// sub-mesh has its part already. Errors: an axis that the mesh does not have (unknown_axis), a coordinate out of its
// range, a mesh that is a sub-mesh already (invalid_argument).
Mesh sub_mesh(const Mesh& mesh, std::string_view mesh_axis, int64_t at);

// The mesh that a sub-mesh is cut from; any other mesh itself.
Mesh whole_mesh(const Mesh& mesh);

}  // namespace tessera
