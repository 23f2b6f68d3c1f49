// Meshes for tests.
#pragma once

#include <array>
#include <vector>

#include "sharding/placement/mesh.h"

namespace tessera::testing {

// Returns the same mesh with shared and with private replicas.
inline std::array<Mesh, 2> shared_and_private(const std::vector<MeshAxis>& axes) {
  return {make_mesh(axes), make_mesh(axes, {.private_replicas = true})};
}

}  // namespace tessera::testing
