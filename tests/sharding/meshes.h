// The meshes on which tests run what they hold.
#pragma once

#include <array>
#include <vector>

#include "sharding/placement/mesh.h"

namespace tessera::testing {

// One mesh twice: its devices share what is equal on them, or each has its own.
inline std::array<Mesh, 2> shared_and_private(const std::vector<MeshAxis>& axes) {
  return {make_mesh(axes), make_mesh(axes, {.private_replicas = true})};
}

}  // namespace tessera::testing
