// expect: tessera: the mesh comes first: MeshRules(mesh, rules).
#include "sharding/placement.h"

tessera::MeshRules place(tessera::Mesh mesh) { return {{{"batch", "data"}}, mesh}; }
